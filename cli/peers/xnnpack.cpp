#include <fmt/format.h>

#include <cstddef>
#include <limits>
#include <tandem/base/convert.hpp>

#include "base/shared_library.hpp"
#include "failure.hpp"
#include "peers/peer.hpp"

namespace tandem::cli {
namespace {

// Of XNNPACK's C interface, as it is in versions that also have products by 2-bit weights. Functions of the
// same names take other arguments in older ones.
using Handle = void*;
struct RowParameters {
  std::int32_t zero_point;
  float scale;
};
constexpr std::size_t kExtraRows = 15;   // it may read so many parameters behind the last row
constexpr std::size_t kExtraBytes = 64;  // and at least 16 bytes behind an operand
constexpr std::uint8_t kZeroPoint = 8;

struct Functions {
  int (*initialize)(const void* allocator);
  int (*create_convert)(std::uint32_t flags, Handle* op);
  int (*reshape_convert)(Handle op, std::size_t rows, std::size_t columns, std::size_t input_stride,
                         std::size_t output_stride, Handle threads);
  int (*setup_convert)(Handle op, const float* input, std::int8_t* output, float* row_sums,
                       RowParameters* rows);
  int (*create_channelwise)(std::size_t k, std::size_t n, std::size_t input_stride, std::size_t output_stride,
                            std::uint8_t zero_point, const float* scales, const void* weight,
                            const float* bias, float least, float most, std::uint32_t flags,
                            Handle weights_cache, Handle* op);
  int (*reshape_channelwise)(Handle op, std::size_t rows, std::size_t* workspace_size, Handle threads);
  int (*setup_channelwise)(Handle op, const std::int8_t* input, float* output, void* workspace,
                           const RowParameters* rows);
  int (*create_groups)(std::size_t k, std::size_t n, std::size_t input_stride, std::size_t output_stride,
                       std::size_t group, std::uint8_t zero_point, const std::uint16_t* bf16_scales,
                       const void* weight, const float* bias, float least, float most, std::uint32_t flags,
                       Handle weights_cache, Handle* op);
  int (*reshape_groups)(Handle op, std::size_t rows, std::size_t* workspace_size, Handle threads);
  int (*setup_groups)(Handle op, const std::int8_t* input, float* output, void* workspace,
                      const RowParameters* rows);
  int (*run)(Handle op, Handle threads);
  int (*delete_operator)(Handle op);
};

void check(int status, const char* what) {
  if (status != 0) not_supported(fmt::format("XNNPACK: {} returned {}", what, status));
}

std::vector<std::uint16_t> to_bf16(const float* values, std::int64_t count) {
  std::vector<std::uint16_t> narrow(static_cast<std::size_t>(count));
  take(convert(TensorView::contiguous(const_cast<float*>(values), {count}, DType::kF32),
               TensorView::contiguous(narrow.data(), {count}, DType::kBF16)));
  return narrow;
}

/// Rows are rounded to 8 bits and multiplied by the operators that XNNPACK takes on x86: qdu8-f32-qc4w where
/// a channel has one scale, else qdu8-f32-qb4w. On the calling thread.
class Product final : public PeerProduct {
 public:
  Product(const Functions& functions, const PeerFourBitOperands& operands)
      : call_(functions),
        rounded_(static_cast<std::size_t>(operands.m * operands.k) + kExtraBytes),
        rows_(static_cast<std::size_t>(operands.m) + kExtraRows) {
    const auto m = static_cast<std::size_t>(operands.m);
    const auto n = static_cast<std::size_t>(operands.n);
    const auto k = static_cast<std::size_t>(operands.k);
    constexpr float kMost = std::numeric_limits<float>::infinity();
    check(call_.create_convert(0, &convert_), "create_convert_nc_f32_qdu8");
    check(call_.reshape_convert(convert_, m, k, k, k, nullptr), "reshape_convert_nc_f32_qdu8");
    check(call_.setup_convert(convert_, operands.input, rounded_.data(), nullptr, rows_.data()),
          "setup_convert_nc_f32_qdu8");
    std::size_t workspace_size = 0;
    if (operands.group == operands.k) {
      check(call_.create_channelwise(k, n, k, n, kZeroPoint, operands.scales, operands.nibbles, nullptr,
                                     -kMost, kMost, 0, nullptr, &multiply_),
            "create_fully_connected_nc_qdu8_f32_qc4w");
      check(call_.reshape_channelwise(multiply_, m, &workspace_size, nullptr),
            "reshape_fully_connected_nc_qdu8_f32_qc4w");
      workspace_.resize(workspace_size);
      check(
          call_.setup_channelwise(multiply_, rounded_.data(), operands.out, workspace_.data(), rows_.data()),
          "setup_fully_connected_nc_qdu8_f32_qc4w");
      return;
    }
    const std::vector<std::uint16_t> scales =
        to_bf16(operands.scales, operands.n * (operands.k / operands.group));
    check(call_.create_groups(k, n, k, n, static_cast<std::size_t>(operands.group), kZeroPoint, scales.data(),
                              operands.nibbles, nullptr, -kMost, kMost, 0, nullptr, &multiply_),
          "create_fully_connected_nc_qdu8_f32_qb4w");
    check(call_.reshape_groups(multiply_, m, &workspace_size, nullptr),
          "reshape_fully_connected_nc_qdu8_f32_qb4w");
    workspace_.resize(workspace_size);
    check(call_.setup_groups(multiply_, rounded_.data(), operands.out, workspace_.data(), rows_.data()),
          "setup_fully_connected_nc_qdu8_f32_qb4w");
  }
  ~Product() override {
    for (const Handle op : {convert_, multiply_}) {
      if (op != nullptr) call_.delete_operator(op);
    }
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  void run() override {
    check(call_.run(convert_, nullptr), "a run of convert_nc_f32_qdu8");
    check(call_.run(multiply_, nullptr), "a run of fully_connected_nc");
  }

 private:
  Functions call_;
  std::vector<std::int8_t> rounded_;
  std::vector<RowParameters> rows_;
  std::vector<std::byte> workspace_;
  Handle convert_ = nullptr;
  Handle multiply_ = nullptr;
};

class Xnnpack final : public Peer {
 public:
  Xnnpack(const Functions& functions, std::string path) : functions_(functions), path_(std::move(path)) {}
  [[nodiscard]] std::string name() const override { return "xnnpack"; }
  [[nodiscard]] std::string description() const override { return fmt::format("XNNPACK, {}", path_); }
  void use_threads(int count) override {
    if (count > 1) not_supported("XNNPACK: called on one thread only");
  }
  using Peer::prepare;
  [[nodiscard]] std::unique_ptr<PeerProduct> prepare(const PeerFourBitOperands& operands) override {
    return std::make_unique<Product>(functions_, operands);
  }

 private:
  Functions functions_;
  std::string path_;
};

}  // namespace

Peers load_xnnpack(const std::optional<std::string>& path) {
  constexpr std::string_view kFolders[] = {"/usr/local/lib"};
  const SharedLibrary library = take(SharedLibrary::load({.name = "XNNPACK",
                                                          .soname = "libXNNPACK.so.0",
                                                          .variable = "--peers xnnpack",
                                                          .path = path,
                                                          .folders = kFolders}));
  void (*sign_of_version)() = nullptr;
  take(library.find("xnn_create_fully_connected_nc_qdu8_f32_qc2w", sign_of_version));
  Functions call{};
  take(library.find("xnn_initialize", call.initialize));
  take(library.find("xnn_create_fully_connected_nc_qdu8_f32_qc4w", call.create_channelwise));
  take(library.find("xnn_reshape_fully_connected_nc_qdu8_f32_qc4w", call.reshape_channelwise));
  take(library.find("xnn_setup_fully_connected_nc_qdu8_f32_qc4w", call.setup_channelwise));
  take(library.find("xnn_create_fully_connected_nc_qdu8_f32_qb4w", call.create_groups));
  take(library.find("xnn_reshape_fully_connected_nc_qdu8_f32_qb4w", call.reshape_groups));
  take(library.find("xnn_setup_fully_connected_nc_qdu8_f32_qb4w", call.setup_groups));
  take(library.find("xnn_create_convert_nc_f32_qdu8", call.create_convert));
  take(library.find("xnn_reshape_convert_nc_f32_qdu8", call.reshape_convert));
  take(library.find("xnn_setup_convert_nc_f32_qdu8", call.setup_convert));
  take(library.find("xnn_run_operator", call.run));
  take(library.find("xnn_delete_operator", call.delete_operator));
  check(call.initialize(nullptr), "initialize");
  Peers peers;
  peers.push_back(std::make_unique<Xnnpack>(call, library.path()));
  return peers;
}

}  // namespace tandem::cli
