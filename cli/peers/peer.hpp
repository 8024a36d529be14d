#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tandem/base/dtype.hpp>
#include <vector>

namespace tandem::cli {

// Other libraries whose products `bench` times beside tandem's. They are loaded where the user asks for them,
// and declared here as far as they are called: neither the tool nor its build depends on one.

/// out [m, n] = a [m, k] * b [k, n], all of one type and without holes. The memory outlives the product.
struct PeerOperands {
  DType dtype = DType::kF32;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool b_is_column_major = false;
  const void* a = nullptr;
  const void* b = nullptr;
  void* out = nullptr;
};

/// out [m, n] = input [m, k] * weight [n, k] in f32, by rows of 8 bits and 4-bit weights. Values are stored
/// plus 8, two in a byte, the first of a row in its low half. `group` weights of a row share a scale.
struct PeerFourBitOperands {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t group = 0;
  const float* input = nullptr;
  const std::uint8_t* nibbles = nullptr;
  const float* scales = nullptr;  ///< [n, k / group]
  float* out = nullptr;
};

/// A product with all that can be made before its operands are known, such as a packed weight.
class PeerProduct {
 public:
  virtual ~PeerProduct() = default;
  /// Blocks until it is done.
  virtual void run() = 0;
};

/// One of a library's ways to multiply. What it lacks throws exit 4 with the reason.
class Peer {
 public:
  virtual ~Peer() = default;
  /// As columns and keys call it: "onednn_packed".
  [[nodiscard]] virtual std::string name() const = 0;
  /// "oneDNN 2.6.3, /usr/lib/...".
  [[nodiscard]] virtual std::string description() const = 0;
  virtual void use_threads(int count) = 0;
  [[nodiscard]] virtual std::unique_ptr<PeerProduct> prepare(const PeerOperands& operands);
  [[nodiscard]] virtual std::unique_ptr<PeerProduct> prepare(const PeerFourBitOperands& operands);
};

/// What `--peers` asks for: "openblas", "onednn", "xnnpack", each alone or as NAME=FILE.
struct PeerRequest {
  std::string name;
  std::optional<std::string> path;
};
/// Throws exit 2 for a name that is none.
[[nodiscard]] std::vector<PeerRequest> parse_peers(const std::vector<std::string>& flags);

using Peers = std::vector<std::unique_ptr<Peer>>;
/// Why libraries are not here, by their names.
using MissingPeers = std::map<std::string, std::string>;
/// All ways of the libraries that are here, and why the others are `missing`; prints both.
[[nodiscard]] Peers load_peers(const std::vector<PeerRequest>& requests, MissingPeers& missing);

// All ways of one library. Throws exit 4 with what was tried.
[[nodiscard]] Peers load_openblas(const std::optional<std::string>& path);
[[nodiscard]] Peers load_onednn(const std::optional<std::string>& path);
[[nodiscard]] Peers load_xnnpack(const std::optional<std::string>& path);

}  // namespace tandem::cli
