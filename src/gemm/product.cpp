#include "gemm/product.hpp"

#include <algorithm>
#include <array>
#include <tandem/base/shard.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "base/with_last.hpp"
#include "gemm/backend.hpp"
#include "gemm/operand_checks.hpp"
#include "gemm/piece_grid.hpp"

namespace tandem::gemm {
namespace {

bool share_tiles(std::int64_t m, const Owners& owners) {
  return owners.own_all || m <= PartialGrid::kMostShared;
}
/// That are cut together.
std::int64_t rows_cut(std::int64_t m, const Owners& owners) {
  return share_tiles(m, owners) ? m : shard_stride(m, owners.count);
}

/// The one whose shapes and types these arguments have.
const Front& front_of(const ProductArgs& args) {
  if (args.departure != nullptr) return kDepartingMm;
  if (args.packed != nullptr) return kMatmul4bit;
  const bool is_scaled = args.a_scale != nullptr || args.b_scale != nullptr || args.result_scale != nullptr;
  const bool is_narrow = is_f8(args.a->dtype) || is_f8(args.b->dtype) || is_f8(args.out->dtype);
  const auto is_of_other_type = [&](const TensorView* added) {
    return added != nullptr && added->dtype != args.out->dtype;
  };
  const bool adds_other_type = is_of_other_type(args.bias) || is_of_other_type(args.addend);
  const bool makes_other_type = args.out->dtype != args.a->dtype && args.out->dtype != DType::kF32;
  const bool is_plain =
      !is_scaled && !is_narrow && !adds_other_type && !makes_other_type && args.a->dim() == 2;
  if (args.arrival != nullptr) return is_plain ? kAsyncInputMm : kScaledAsyncInputMm;
  return is_plain ? kMm : kScaledMatmul;
}

/// For operands whose memory is not known yet.
Result<void> check_devices(std::string_view who, const ProductArgs& like, const Device& device) {
  const Arrival* const arrival = like.arrival;
  const std::array views = {
      like.a,
      like.b,
      like.out,
      like.bias,
      like.a_scale,
      like.b_scale,
      like.result_scale,
      like.addend,
      arrival == nullptr ? nullptr : &arrival->signals,
      arrival == nullptr || !arrival->complete ? nullptr : &arrival->complete->rows,
      arrival == nullptr || !arrival->complete_scale ? nullptr : &*arrival->complete_scale};
  for (const TensorView* view : views) {
    if (view == nullptr || device.can_reach(view->device)) continue;
    return failf(ErrorCode::kInvalidArgument, "{}: prepare: {} is out of reach of {}", who, to_string(*view),
                 to_string(device.id()));
  }
  return {};
}

/// "", or how a product scales whose scales need more than one number an operand.
std::string scales_text(const Product& product) {
  const auto is_one = [](Scale scale) { return scale == Scale::kNone || scale == Scale::kTensor; };
  if (is_one(product.a_scale) && is_one(product.b_scale)) return {};
  return fmt::format(", scaled {} * {}", to_string(product.a_scale), to_string(product.b_scale));
}

/// a_scale with a's dims, as implementations know it.
TensorView a_scale_of(const ProductArgs& args) {
  if (args.a_scale == nullptr) return {};
  const bool is_flat = args.a_scale->numel() != 1 && args.a_scale->dim() != args.a->dim();
  return is_flat ? unflatten_rows(*args.a_scale, args.a->sizes) : *args.a_scale;
}

/// Calls `use` with the checked arguments as implementations know them.
template <class Use>
Result<void> with_known_scale(ProductArgs args, Use use) {
  const TensorView a_scale = a_scale_of(args);
  if (args.a_scale != nullptr) args.a_scale = &a_scale;
  return use(args);
}

/// What run() is asked for. Errors: kInvalidArgument for operands that do not fit, or overlap.
Result<Product> checked_product(const Front& front, const ProductArgs& args, const Device& device) {
  TANDEM_TRY(check_views(front.who, args, device));
  TANDEM_ASSIGN(const Product product, front.product_of(args));
  TANDEM_TRY(check_out_apart(front.who, args));
  return product;
}

}  // namespace

std::string_view to_string(Scale scale) {
  switch (scale) {
    case Scale::kNone:
      return "not";
    case Scale::kTensor:
      return "as a whole";
    case Scale::kRow:
      return "by rows";
    case Scale::kColumn:
      return "by columns";
    case Scale::kVector128:
      return "1x128";
    case Scale::kBlock128:
      return "128x128";
    case Scale::kGroup:
      return "in groups";
  }
  return "?";
}

std::int64_t num_piece_flags(std::int64_t rows, int ranks, std::int64_t row_bytes) {
  const PieceCut cut{
      .rows = rows, .shard_rows = shard_stride(rows, ranks), .shards = ranks, .row_bytes = row_bytes};
  return cut.num_flags();
}

PieceCut piece_cut_of(const Product& product) {
  const Chunks& chunks = *product.arrival;
  const std::int64_t of_rank = std::max<std::int64_t>(chunks.complete, 1);
  return {.rows = product.m,
          .shard_rows = shard_stride(product.m, static_cast<int>(chunks.count)) * of_rank,
          .shards = static_cast<int>(chunks.count / of_rank),
          .row_bytes = product.k * size_bytes(product.a)};
}

bool shares_tiles(const Product& product) {
  return product.arrival && product.arrival->in_pieces > 0 && piece_cut_of(product).shares_tiles();
}

PartialGrid partial_grid_of(std::int64_t m, std::int64_t n, const Owners& owners) {
  return {owners.count, rows_cut(m, owners), n, share_tiles(m, owners)};
}

bool can_count_partials(std::int64_t m, std::int64_t n, const Owners& owners) {
  return PartialGrid::accepts(owners.count, rows_cut(m, owners), n);
}

bool Product::is_plain() const {
  const auto is_as_out = [this](const std::optional<DType>& added) { return !added || *added == out; };
  return a_scale == Scale::kNone && b_scale == Scale::kNone && !epilogue.result_scale && is_matrix &&
         is_factor_type(a) && a == b && (out == a || out == DType::kF32) && is_as_out(epilogue.bias) &&
         is_as_out(epilogue.addend);
}

std::string to_string(const Product& product) {
  const std::string sizes = fmt::format("{}x{}x{}", product.m, product.n, product.k);
  const std::string epilogue = fmt::format("{}{}{}", product.epilogue.bias ? " + bias" : "",
                                           product.epilogue.addend ? " + addend" : "",
                                           product.epilogue.accumulate ? " accumulated" : "");
  if (product.owners) {
    return fmt::format("mm {} {} * {} -> {} for {} owners{}{}{}{}", sizes, to_string(product.a),
                       to_string(product.b), to_string(product.out), product.owners->count,
                       product.owners->own_all ? " of all" : "", epilogue, scales_text(product),
                       product.owners->is_made ? ", made before" : "");
  }
  if (product.arrival) {
    const Chunks& chunks = *product.arrival;
    return fmt::format("async_input_mm {} in {} chunks {} -> {}{}{}{}{}", sizes, chunks.count,
                       to_string(product.a), to_string(product.out), epilogue, scales_text(product),
                       product.b_is_column_major ? ", b column-major" : "",
                       chunks.in_pieces == 0 ? "" : fmt::format(", {} in pieces", chunks.in_pieces));
  }
  if (product.b_scale == Scale::kGroup) {
    return fmt::format("matmul_4bit {} {} in groups of {} -> {}{}", sizes, to_string(product.a),
                       product.group, to_string(product.out), epilogue);
  }
  if (product.is_plain())
    return fmt::format("mm {} {} -> {}{}{}", sizes, to_string(product.a), to_string(product.out), epilogue,
                       product.tells ? ", tells of its rows" : "");
  return fmt::format("scaled_mm {} {} * {} -> {}{}", sizes, to_string(product.a), to_string(product.b),
                     to_string(product.out), scales_text(product));
}

const Implementation* choose(const Product& product, const Device& device, std::string* reasons) {
  const Backend* backend = device.service<Backend>();
  if (backend == nullptr) {
    if (reasons != nullptr) *reasons = fmt::format("{} has no products attached", to_string(device.id()));
    return nullptr;
  }
  std::string why_not;
  for (const Implementation* implementation : backend->implementations()) {
    if (implementation->accepts(product, reasons == nullptr ? nullptr : &why_not)) return implementation;
    if (reasons == nullptr) continue;
    if (!reasons->empty()) *reasons += "; ";
    *reasons += fmt::format("{}: {}", implementation->name(), why_not);
  }
  return nullptr;
}

std::string runner_in_words(const Product& product, const Device& device) {
  std::string reasons;
  const Implementation* const found = choose(product, device, &reasons);
  const std::string_view name = found == nullptr ? "none" : found->name();
  return reasons.empty() ? std::string(name) : fmt::format("{} ({})", name, reasons);
}

Support can_run(const Product& product, const Device& device) {
  std::string reasons;
  if (choose(product, device, &reasons) != nullptr) return Support::yes();
  return Support::no(std::move(reasons));
}

std::optional<double> predicted_us(const Product& product, const Device& device, const cost::GpuRates& gpu) {
  const Implementation* const found = choose(product, device);
  return found == nullptr ? std::nullopt : found->predicted_us(product, gpu);
}

Result<const Implementation*> chosen(const Product& product, const Device& device) {
  if (const Implementation* const found = choose(product, device)) return found;
  return failf(ErrorCode::kUnsupported, "{} cannot run on {}: {}", to_string(product), to_string(device.id()),
               can_run(product, device).why_not);
}

namespace {
/// Another implementation has another order.
Result<void> check_packed_b(std::string_view who, const ProductArgs& args,
                            const Implementation& implementation) {
  if (args.packed_b == nullptr || args.packed_b->implementation() == implementation.name()) return {};
  return failf(ErrorCode::kInvalidArgument,
               "{}: b was packed for {}, and {} runs this product: pack it for this device", who,
               args.packed_b->implementation(), implementation.name());
}
}  // namespace

Result<void> run(const Front& front, const ProductArgs& args, Stream& stream) {
  const Result<Product> checked = checked_product(front, args, stream.device());
  TANDEM_TRY(checked);
  const Product& product = *checked;
  if (args.arrival != nullptr) TANDEM_TRY(check_senders_and_pieces(args, stream));
  TANDEM_ASSIGN(const Implementation* const implementation, chosen(product, stream.device()));
  TANDEM_TRY(check_packed_b(front.who, args, *implementation));
  if (product.is_empty()) return {};
  if (args.arrival != nullptr && args.arrival->senders)
    TANDEM_TRY(args.arrival->senders->handle->watch(stream));
  if (args.departure != nullptr) TANDEM_TRY(args.departure->place.handle->watch(stream));
  if (args.telling != nullptr) TANDEM_TRY(args.telling->handle->watch(stream));
  return with_known_scale(
      args, [&](const ProductArgs& known) { return implementation->run(product, known, stream); });
}

Result<void> run_planned(const Front& front, const Product& planned, const Implementation& implementation,
                         const ProductArgs& args, Stream& stream) {
  const Result<Product> product = checked_product(front, args, stream.device());
  TANDEM_TRY(product);
  if (*product != planned) {
    return failf(ErrorCode::kInvalidArgument, "{}: the arguments are of {}, the plan of {}", front.who,
                 to_string(*product), to_string(planned));
  }
  return product->is_empty() ? Result<void>() : implementation.run(*product, args, stream);
}

Result<void> prepare(const Front& front, const ProductArgs& like, Stream& stream) {
  TANDEM_ASSIGN(const Product product, front.product_of(like));
  TANDEM_TRY(check_devices(front.who, like, stream.device()));
  TANDEM_ASSIGN(const Implementation* const implementation, chosen(product, stream.device()));
  if (product.is_empty()) return {};
  return with_known_scale(
      like, [&](const ProductArgs& known) { return implementation->prepare(product, known, stream); });
}

Result<void> run(const ProductArgs& args, Stream& stream) {
  return run(front_of(args), args, stream);
}

Result<void> prepare(const ProductArgs& like, Stream& stream) {
  return prepare(front_of(like), like, stream);
}

}  // namespace tandem::gemm
