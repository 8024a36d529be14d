#include "plan_fit.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "failure.hpp"

namespace tandem::cli {
namespace {

constexpr double kGoal = 0.1;
constexpr std::string_view kFittedTo = "fitted to ";

Accuracy accuracy(std::vector<double> errors) {
  Accuracy all{.count = static_cast<int>(errors.size())};
  if (errors.empty()) return all;
  all.within = static_cast<int>(
      std::count_if(errors.begin(), errors.end(), [](double error) { return error <= kGoal; }));
  const auto middle = errors.begin() + static_cast<std::ptrdiff_t>(errors.size() / 2);
  std::nth_element(errors.begin(), middle, errors.end());
  all.median = *middle;
  return all;
}

double relative_error(double predicted, double measured) {
  return std::abs(predicted / measured - 1);
}

/// What a row adds to the sum that the fit makes small. Times of the product alone count too: they tell a
/// product from what is beside it.
double loss_of(const Forecaster& forecaster, const MeasuredRow& row) {
  // Beyond this a row is of something that the model does not have.
  constexpr double kMost = 0.33;
  constexpr double kBeyond = 0.05;  // so that a far machine is found all the same
  const auto one = [&](double predicted, double measured) {
    const double error = std::abs(std::log(predicted / measured));
    return error < kMost ? error * error : kMost * kMost + kBeyond * (error - kMost);
  };
  const auto forecast = forecaster.forecast(row.problem);
  if (!forecast) return 0;
  double loss = one(forecast->product_us, row.product_us);
  for (const auto& [algorithm, us] : row.us) {
    if (const double* const predicted = forecast->us_of(algorithm)) loss += one(*predicted, us);
  }
  return loss;
}

double loss_of(const Forecaster& forecaster, const std::vector<MeasuredRow>& rows) {
  double loss = 0;
  for (const MeasuredRow& row : rows) loss += loss_of(forecaster, row);
  return loss;
}

/// A machine whose rates are changed one by one.
class Fit {
 public:
  Fit(const cost::Machine& base, const std::vector<MeasuredRow>& rows)
      : rows_(rows), machine_(base), forecaster_(take(Forecaster::make(base))) {
    best_ = loss_of(forecaster_, rows_);
  }

  /// Tries the rate `factor` times as large and as small, again where that helps.
  void move(cost::MachineRate& rate, double factor) {
    for (const double by : {factor, 1 / factor}) {
      while (improves(rate, by)) continue;
    }
  }
  [[nodiscard]] cost::Machine& machine() { return machine_; }

 private:
  bool improves(cost::MachineRate& rate, double by) {
    // Less is noise.
    constexpr double kLeast = 1e-4;
    const double before = rate.value;
    rate.value *= by;
    const double loss = loss_of(take(forecaster_.with_rates(machine_)), rows_);
    if (loss < best_ * (1 - kLeast)) {
      best_ = loss;
      return true;
    }
    rate.value = before;
    return false;
  }

  const std::vector<MeasuredRow>& rows_;
  cost::Machine machine_;
  Forecaster forecaster_;
  double best_ = 0;
};

/// To what a person would write.
double rounded(double value) {
  const double unit = std::pow(10, std::floor(std::log10(value)) - 3);
  return std::round(value / unit) * unit;
}

}  // namespace

Accuracy accuracy_of(const Forecaster& forecaster, const std::vector<MeasuredRow>& rows,
                     Algorithm algorithm) {
  std::vector<double> errors;
  for (const MeasuredRow& row : rows) {
    const auto forecast = forecaster.forecast(row.problem);
    const double* const predicted = forecast ? forecast->us_of(algorithm) : nullptr;
    for (const auto& [one, us] : row.us) {
      if (one == algorithm && predicted != nullptr) errors.push_back(relative_error(*predicted, us));
    }
  }
  return accuracy(std::move(errors));
}

Accuracy accuracy_of_products(const Forecaster& forecaster, const std::vector<MeasuredRow>& rows) {
  std::vector<double> errors;
  for (const MeasuredRow& row : rows) {
    const auto forecast = forecaster.forecast(row.problem);
    if (forecast) errors.push_back(relative_error(forecast->product_us, row.product_us));
  }
  return accuracy(std::move(errors));
}

bool is_fitted_to(const cost::Machine& machine, const std::string& file) {
  return std::any_of(machine.rates.begin(), machine.rates.end(), [&](const cost::MachineRate& rate) {
    const std::string listed = rate.source + ",";
    return rate.source.starts_with(kFittedTo) && listed.find(fmt::format(" {},", file)) != std::string::npos;
  });
}

cost::Machine fit_machine(const cost::Machine& base, const std::vector<MeasuredRow>& rows) {
  std::set<std::string> gpus;
  std::set<std::string> files;
  for (const MeasuredRow& row : rows) {
    gpus.insert(row.gpu);
    files.insert(row.file);
  }
  if (gpus.empty())
    bad_input("--fit: the files have no rows of a fused op on GPUs: measure some with tandem bench --json");
  if (gpus.size() > 1)
    bad_input(
        fmt::format("--fit: rows of {} GPUs ({}): name files of one", gpus.size(), fmt::join(gpus, ", ")));
  Fit fit(base, rows);
  for (const double factor : {1.2, 1.07, 1.02, 1.07, 1.02}) {
    for (cost::MachineRate& rate : fit.machine().rates) {
      if (rate.name != "multiprocessors") fit.move(rate, factor);
    }
  }
  cost::Machine machine = fit.machine();
  machine.gpu = *gpus.begin();
  machine.note = fmt::format("fitted by tandem plan --fit to {} rows", rows.size());
  for (cost::MachineRate& rate : machine.rates) {
    const cost::MachineRate* const before = base.find(rate.name);
    if (before != nullptr && before->value == rate.value) continue;
    rate.value = rounded(rate.value);
    rate.source = fmt::format("{}{}", kFittedTo, fmt::join(files, ", "));
  }
  return machine;
}

}  // namespace tandem::cli
