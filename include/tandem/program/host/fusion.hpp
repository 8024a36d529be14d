#pragma once

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <optional>
#include <string>
#include <tandem/base/dtype.hpp>
#include <tandem/base/error.hpp>
#include <tandem/program/host/scalar.hpp>
#include <vector>

namespace tandem::program::host {

// A distributed matmul as it is stated: symbolic tensors, how they are sharded over a mesh of devices, and
// the ops between them. lower.hpp makes a host program of it.
//
//   Fusion fusion;
//   SymbolicTensor* a = fusion.make_contig_tensor(4);  // [S, DIDx(D), M/(S*D), K]
//   SymbolicTensor* b = fusion.make_contig_tensor(2);  // [K, N]
//   SymbolicTensor* c = fusion.matmul(a, b);           // [S, D, M/(S*D), N]
//   fusion.add_input(a);
//   fusion.add_input(b);
//   fusion.add_output(c);
//   const auto mesh = DeviceMesh::create_for_num_devices(D);
//   for (SymbolicTensor* tensor : {a, b, c}) tensor->set_device_mesh(mesh);
//   a->axis(1).parallelize(ParallelType::kDIDx);
//   c->axis(0).parallelize(ParallelType::kStream);

/// What an axis is spread over: nothing, the devices of the mesh, or the streams of a host loop.
enum class ParallelType : std::uint8_t { kSerial, kDIDx, kStream };
/// "S", "deviceIdx.x", "Stream".
[[nodiscard]] std::string to_string(ParallelType type);

enum class DomainKind : std::uint8_t { kIteration, kReduction, kBroadcast };

/// One axis of a tensor. Of an axis that is kDIDx every device has one element.
class IterDomain {
 public:
  IterDomain(int id, Scalar extent, DomainKind kind = DomainKind::kIteration)
      : id_(id), extent_(std::move(extent)), kind_(kind) {}

  void parallelize(ParallelType type) { parallel_type_ = type; }

  [[nodiscard]] int id() const { return id_; }
  [[nodiscard]] const Scalar& extent() const { return extent_; }
  [[nodiscard]] DomainKind kind() const { return kind_; }
  [[nodiscard]] bool is_reduction() const { return kind_ == DomainKind::kReduction; }
  [[nodiscard]] bool is_broadcast() const { return kind_ == DomainKind::kBroadcast; }
  [[nodiscard]] ParallelType parallel_type() const { return parallel_type_; }
  [[nodiscard]] bool is_sharded() const { return parallel_type_ == ParallelType::kDIDx; }
  /// "ideviceIdx.x1{i2}", "rS10{i4}".
  [[nodiscard]] std::string to_string() const;

 private:
  int id_;
  Scalar extent_;
  DomainKind kind_;
  ParallelType parallel_type_ = ParallelType::kSerial;
};

/// An ordered list of devices: the rank at place i has element i of a sharded axis.
class DeviceMesh {
 public:
  DeviceMesh() = default;
  explicit DeviceMesh(std::vector<int> devices) : devices_(std::move(devices)) {}
  /// Devices 0 ... num_devices - 1; none for a number below 1.
  [[nodiscard]] static DeviceMesh create_for_num_devices(int num_devices);

  [[nodiscard]] const std::vector<int>& devices() const { return devices_; }
  [[nodiscard]] int size() const { return static_cast<int>(devices_.size()); }
  [[nodiscard]] bool empty() const { return devices_.empty(); }
  /// "DeviceMesh{0 1}".
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(const DeviceMesh&, const DeviceMesh&) = default;

 private:
  std::vector<int> devices_;
};

enum class MemoryType : std::uint8_t { kGlobal, kLocal };

/// A tensor without sizes: axes, a type, and the devices that have it.
class SymbolicTensor {
 public:
  SymbolicTensor(int id, DType dtype, MemoryType memory, std::vector<IterDomain> axes)
      : id_(id), dtype_(dtype), memory_(memory), axes_(std::move(axes)) {}

  [[nodiscard]] int id() const { return id_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] MemoryType memory() const { return memory_; }
  void set_memory(MemoryType memory) { memory_ = memory; }
  [[nodiscard]] const DeviceMesh& device_mesh() const { return mesh_; }
  void set_device_mesh(DeviceMesh mesh) { mesh_ = std::move(mesh); }
  [[nodiscard]] int dim() const { return static_cast<int>(axes_.size()); }
  [[nodiscard]] const std::vector<IterDomain>& axes() const { return axes_; }
  /// An axis; out of range is a caller's bug (asserted).
  [[nodiscard]] IterDomain& axis(int idx);
  [[nodiscard]] const IterDomain& axis(int idx) const;
  /// Whether the mesh's devices have different parts of it.
  [[nodiscard]] bool is_sharded() const;
  /// "T0_g_float[iS0{i0}, ideviceIdx.x1{i2}] (DeviceMesh{0 1})".
  [[nodiscard]] std::string to_string() const;

 private:
  int id_;
  DType dtype_;
  MemoryType memory_;
  std::vector<IterDomain> axes_;
  DeviceMesh mesh_;
};

enum class OpKind : std::uint8_t { kMatmul, kLinear, kSum };
/// "matmul", "linear", "sum".
[[nodiscard]] std::string to_string(OpKind kind);

/// One op of a fusion; tensors by their ids, -1 where there is none.
struct FusionOp {
  OpKind kind = OpKind::kMatmul;
  int a = -1;
  int b = -1;
  int bias = -1;
  int out = -1;
  std::vector<int> summed = {};  ///< axes of a
};

/// Tensors and ops. Owns its tensors; pointers to them are valid as long as it. What a statement has wrong is
/// kept, and returned by lower(): the first fault counts, and its op makes a tensor without axes.
class Fusion {
 public:
  Fusion() = default;
  Fusion(Fusion&&) = default;
  Fusion& operator=(Fusion&&) = default;

  /// A contiguous tensor; an extent of its own for every axis.
  SymbolicTensor* make_contig_tensor(int num_dims, DType dtype = DType::kF32);
  /// The same with sizes: -1 for a symbolic extent, 1 for an axis to broadcast.
  SymbolicTensor* make_contig_concrete_tensor(std::initializer_list<std::int64_t> sizes,
                                              DType dtype = DType::kF32);

  /// Shapes: a [..., m, k], b [..., k, n], out [..., m, n]; leading axes broadcast, counted from the right.
  ///         The summed axis k stands behind the axes of out, as a reduction.
  SymbolicTensor* matmul(SymbolicTensor* a, SymbolicTensor* b);
  /// Shapes: a [..., k], weight [n, k], bias [n], out [..., n].
  SymbolicTensor* linear(SymbolicTensor* a, SymbolicTensor* weight, SymbolicTensor* bias = nullptr);
  /// Sums over `axes`, which stay in the result as reductions.
  SymbolicTensor* sum(SymbolicTensor* a, std::initializer_list<int> axes);

  void add_input(SymbolicTensor* tensor);
  void add_output(SymbolicTensor* tensor);

  [[nodiscard]] const std::deque<SymbolicTensor>& tensors() const { return tensors_; }
  [[nodiscard]] const std::vector<FusionOp>& ops() const { return ops_; }
  [[nodiscard]] const std::vector<int>& inputs() const { return inputs_; }
  [[nodiscard]] const std::vector<int>& outputs() const { return outputs_; }
  /// Ids that are taken: of axes, and of the symbols i0, i1, ...
  [[nodiscard]] int num_axes() const { return num_axes_; }
  [[nodiscard]] int num_symbols() const { return num_symbols_; }
  /// Errors: kInvalidArgument for the first statement that makes no sense, with the shapes.
  [[nodiscard]] Result<void> status() const;

 private:
  [[nodiscard]] IterDomain symbolic_axis();
  [[nodiscard]] IterDomain axis_like(const IterDomain& other, DomainKind kind);
  SymbolicTensor* add(DType dtype, std::vector<IterDomain> axes);
  SymbolicTensor* refuse(std::string text);
  [[nodiscard]] bool owns(const SymbolicTensor* tensor) const;

  std::deque<SymbolicTensor> tensors_;
  std::vector<FusionOp> ops_;
  std::vector<int> inputs_;
  std::vector<int> outputs_;
  int num_axes_ = 0;
  int num_symbols_ = 0;
  std::optional<Error> fault_;
};

}  // namespace tandem::program::host
