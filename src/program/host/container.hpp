#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <tandem/program/host/lower.hpp>
#include <variant>
#include <vector>

namespace tandem::program::host {

// What a host program consists of. Tensors are named by their ids, which are places in Container::tensors.

/// A stream: the one that was the caller's, or number `index` of the workers.
struct StreamRef {
  std::optional<Scalar> index;
};

struct GetCurrentStream {
  StreamRef into;
};
struct SetCurrentStream {
  StreamRef stream;
};
/// The current stream waits for all that is on `stream` so far. The host does not wait.
struct Synchronize {
  StreamRef stream;
};
struct Allocate {
  int tensor;
};
/// out = element `index` of axis `axis` of in: a view.
struct Select {
  int in;
  int axis;  ///< a place in the axes of in
  Scalar index;
  int out;
};
enum class CommunicationType : std::uint8_t { kAllgather, kReduceScatter };
struct Communication {
  int number;
  CommunicationType type;
  std::vector<int> team;
  int in;
  int out;
};
enum class P2PType : std::uint8_t { kSend, kRecv };
struct P2PCommunication {
  int number;
  P2PType type;
  int buffer;
  Scalar peer;
};
/// Between these two, point-to-point communications are posted as one.
struct StartCoalescing {};
struct EndCoalescing {
  int number;
};
/// Of the communication, or of the coalesced ones, with this number.
struct Wait {
  std::string_view what;  ///< "Communication", "EndCoalescing"
  int number;
};
struct Multiply {
  OpKind kind;  ///< kMatmul or kLinear
  int a;
  int b;
  int bias;  ///< -1: none
  int out;
};
/// out = in.
struct Set {
  int in;
  int out;
};

struct ForLoop;
struct IfThenElse;
using Node = std::variant<GetCurrentStream, SetCurrentStream, Synchronize, Allocate, Select, Communication,
                          P2PCommunication, StartCoalescing, EndCoalescing, Wait, Multiply, Set,
                          std::shared_ptr<const ForLoop>, std::shared_ptr<const IfThenElse>>;
using Nodes = std::vector<Node>;

/// `index` runs over an axis.
struct ForLoop {
  int tensor;
  int axis;
  std::string index;
  Nodes body;
};
struct IfThenElse {
  Scalar predicate;
  Nodes then;
  Nodes otherwise;
};

struct HostProgram::Container {
  std::deque<SymbolicTensor> tensors = {};
  std::vector<int> inputs = {};
  std::vector<int> outputs = {};
  FusionOp product = {};  ///< of the fusion: which inputs are a, b and bias
  int result = -1;        ///< the fusion's output
  bool workers_wait = false;
  Nodes nodes = {};

  [[nodiscard]] const SymbolicTensor& at(int id) const { return tensors[static_cast<std::size_t>(id)]; }
};

/// The symbols that unrolling binds beside extents and loops' indices.
inline constexpr std::string_view kNumberOfStreams = "numberOfStreams";
inline constexpr std::string_view kOwnDevice = "deviceIdx.x";

/// Elements that one device allocates: reductions are not stored, and of a sharded axis it has one element.
[[nodiscard]] Scalar allocated_size(const SymbolicTensor& tensor);

}  // namespace tandem::program::host
