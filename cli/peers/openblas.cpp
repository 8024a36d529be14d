#include <fmt/format.h>

#include "base/shared_library.hpp"
#include "failure.hpp"
#include "peers/peer.hpp"

namespace tandem::cli {
namespace {

// From cblas.h.
constexpr int kRowMajor = 101;
constexpr int kAsItIs = 111;
constexpr int kTransposed = 112;

struct Functions {
  void (*sgemm)(int order, int a, int b, int m, int n, int k, float alpha, const float* a_data, int a_stride,
                const float* b_data, int b_stride, float beta, float* out, int out_stride);
  void (*set_num_threads)(int count);
  const char* (*get_config)();
  const char* (*get_corename)();
};

class Product final : public PeerProduct {
 public:
  Product(const Functions& functions, const PeerOperands& operands)
      : functions_(functions), operands_(operands) {}
  void run() override {
    const auto m = static_cast<int>(operands_.m);
    const auto n = static_cast<int>(operands_.n);
    const auto k = static_cast<int>(operands_.k);
    const bool column = operands_.b_is_column_major;
    functions_.sgemm(kRowMajor, kAsItIs, column ? kTransposed : kAsItIs, m, n, k, 1,
                     static_cast<const float*>(operands_.a), k, static_cast<const float*>(operands_.b),
                     column ? k : n, 0, static_cast<float*>(operands_.out), n);
  }

 private:
  Functions functions_;
  PeerOperands operands_;
};

class OpenBlas final : public Peer {
 public:
  OpenBlas(const Functions& functions, std::string path) : functions_(functions), path_(std::move(path)) {}
  [[nodiscard]] std::string name() const override { return "openblas"; }
  [[nodiscard]] std::string description() const override {
    return fmt::format("{} for {}, {}", functions_.get_config(), functions_.get_corename(), path_);
  }
  void use_threads(int count) override { functions_.set_num_threads(count); }
  using Peer::prepare;
  [[nodiscard]] std::unique_ptr<PeerProduct> prepare(const PeerOperands& operands) override {
    if (operands.dtype != DType::kF32)
      not_supported("OpenBLAS: of these products cblas_sgemm only is called");
    return std::make_unique<Product>(functions_, operands);
  }

 private:
  Functions functions_;
  std::string path_;
};

}  // namespace

Peers load_openblas(const std::optional<std::string>& path) {
  constexpr std::string_view kFolders[] = {"/usr/lib/*/openblas-pthread"};
  const SharedLibrary library = take(SharedLibrary::load({.name = "OpenBLAS",
                                                          .soname = "libopenblas.so.0",
                                                          .variable = "--peers openblas",
                                                          .path = path,
                                                          .folders = kFolders}));
  Functions functions{};
  take(library.find("cblas_sgemm", functions.sgemm));
  take(library.find("openblas_set_num_threads", functions.set_num_threads));
  take(library.find("openblas_get_config", functions.get_config));
  take(library.find("openblas_get_corename", functions.get_corename));
  Peers peers;
  peers.push_back(std::make_unique<OpenBlas>(functions, library.path()));
  return peers;
}

}  // namespace tandem::cli
