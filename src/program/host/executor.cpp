#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <set>
#include <tandem/program/host/executor.hpp>
#include <tandem/symm/symmetric_memory.hpp>

#include "base/byte_size.hpp"
#include "base/format.hpp"
#include "base/overlap.hpp"
#include "base/try.hpp"
#include "coll/collective_call.hpp"
#include "program/bindings.hpp"
#include "program/host/unroll.hpp"
#include "program/runner.hpp"

namespace tandem::program::host {

static_assert(kMostStreams == kMaxLanes - 1);

namespace {

/// What queued steps use: stays until they have run.
struct Memory {
  Tensor symmetric;
  std::shared_ptr<symm::Handle> handle;  ///< null on one rank
  Buffer scratch;
};

Result<void> check_group(const HostProgram::Container& container, const Group& group) {
  const DeviceMesh& mesh = container.at(container.product.a).device_mesh();
  const std::set<int> devices(mesh.devices().begin(), mesh.devices().end());
  if (mesh.size() == group.size() && *devices.rbegin() == group.size() - 1) return {};
  return failf(ErrorCode::kInvalidArgument, "host program: got a group of {} ranks, need the devices of {}",
               group.size(), mesh.to_string());
}

Result<Unrolled> unroll_for(const HostProgram::Container& container, std::span<const Dims> inputs, int rank,
                            int num_streams) {
  TANDEM_ASSIGN(const ScalarValues extents, bind_extents(container, inputs));
  if (num_streams < 1 || num_streams > kMostStreams) {
    return failf(ErrorCode::kInvalidArgument, "host program: got {} streams, need 1 to {}", num_streams,
                 kMostStreams);
  }
  const Scalar& length = container.at(container.product.a).axis(0).extent();
  TANDEM_ASSIGN(const std::int64_t iterations, length.evaluate(extents));
  const auto most = std::max<std::int64_t>(iterations, 1);
  return unroll(container, extents, rank, static_cast<int>(std::min<std::int64_t>(num_streams, most)));
}

std::vector<Dims> sizes_of(std::span<const TensorView> views) {
  std::vector<Dims> sizes;
  for (const TensorView& view : views) sizes.push_back(view.sizes);
  return sizes;
}

Result<void> check_types(const HostProgram::Container& container, std::span<const TensorView> like) {
  for (std::size_t i = 0; i < like.size(); ++i) {
    const SymbolicTensor& tensor = container.at(container.inputs[i]);
    if (like[i].dtype == tensor.dtype()) continue;
    return failf(ErrorCode::kInvalidArgument, "host program: input {} is {}, need {}: {}", i,
                 tandem::to_string(like[i]), tandem::to_string(tensor.dtype()), tensor.to_string());
  }
  return {};
}

TensorView matrix_view(const TensorView& view, const Unrolled::Input& input) {
  if (!input.is_transposed) return TensorView::contiguous(view.data, input.matrix, view.dtype, view.device);
  return TensorView::contiguous(view.data, {input.matrix[1], input.matrix[0]}, view.dtype, view.device)
      .movedim(0, 1);
}

}  // namespace

Result<std::string> unrolled_text(const HostProgram& program, std::span<const Dims> inputs, int rank,
                                  int num_streams) {
  TANDEM_ASSIGN(const Unrolled unrolled, unroll_for(program.container(), inputs, rank, num_streams));
  return unrolled.program.to_string();
}

struct Executor::Impl {
  Impl(Unrolled of_rank, Group& of_group, Device& on)
      : unrolled(std::move(of_rank)), group(of_group), device(on) {}

  Unrolled unrolled;
  Group& group;
  Device& device;
  DType dtype = DType::kF32;
  std::vector<Dims> input_sizes;
  std::string fingerprint;
  std::shared_ptr<Memory> memory = std::make_shared<Memory>();
  std::vector<std::unique_ptr<Stream>> workers;
  Bindings bindings;
  std::shared_ptr<const timeline::StepList> noted_steps;  // null until a timeline asks

  [[nodiscard]] Result<void> make_local(std::span<const TensorView> like);
  [[nodiscard]] Result<void> connect();
  [[nodiscard]] Result<void> check(std::span<const TensorView> inputs, const TensorView& out,
                                   const Stream& stream) const;
  void bind(std::span<const TensorView> inputs, const TensorView& out);
};

/// Everything that one rank can be refused on its own.
Result<void> Executor::Impl::make_local(std::span<const TensorView> like) {
  const Program& program = unrolled.program;
  input_sizes = sizes_of(like);
  dtype = like.front().dtype;
  for (int i = 1; i < program.num_lanes; ++i) {
    TANDEM_ASSIGN(auto worker, device.create_stream());
    workers.push_back(std::move(worker));
  }
  TANDEM_ASSIGN(memory->scratch, device.allocate(program.memory.scratch_bytes));
  if (program.memory.workspace_bytes > 0) {
    TANDEM_ASSIGN(memory->symmetric, symm::empty({program.memory.workspace_bytes}, DType::kU8, device));
  }
  bindings = Bindings(program);
  bindings.bind_group(group);
  for (int i = 1; i < program.num_lanes; ++i) {
    bindings.bind_lane(static_cast<Lane>(i), *workers[static_cast<std::size_t>(i - 1)]);
  }
  bindings.bind_scratch(program, static_cast<std::byte*>(memory->scratch.data()), device.id());
  return {};
}

Result<void> Executor::Impl::connect() {
  const Program& program = unrolled.program;
  if (program.memory.workspace_bytes > 0) {
    TANDEM_ASSIGN(memory->handle, symm::rendezvous(memory->symmetric, group));
    const int channels = memory->handle->num_channels() - program.base_channel;
    if (channels < program.num_lanes) {
      // The same on every rank: all pads of a group are of one size.
      return failf(
          ErrorCode::kUnsupported,
          "host program: got {} streams, but a pad of {} bytes has {} channels from {} on: take at most "
          "{} streams, or call symm::set_signal_pad_size() before",
          program.num_lanes - 1, memory->handle->signal_pad_size_bytes(), channels, program.base_channel,
          channels - 1);
    }
    coll::keep_for_ops(group, memory);
  }
  bindings.bind_workspace(program, memory->handle.get(), device.id());
  return {};
}

Result<void> Executor::Impl::check(std::span<const TensorView> inputs, const TensorView& out,
                                   const Stream& stream) const {
  if (&stream.device() != &device) {
    return failf(ErrorCode::kInvalidArgument,
                 "host program: got a stream of {}, need one of the device of create(), {}",
                 tandem::to_string(stream.device().id()), tandem::to_string(device.id()));
  }
  if (inputs.size() != input_sizes.size()) {
    return failf(ErrorCode::kInvalidArgument, "host program: got {} inputs, need {}", inputs.size(),
                 input_sizes.size());
  }
  const auto check_one = [&](std::string_view name, std::size_t idx, const TensorView& view,
                             const Dims& sizes) -> Result<void> {
    const bool fits = view.sizes == sizes && view.dtype == dtype && view.is_contiguous();
    if (fits && (view.numel() == 0 || device.can_reach(view.device))) return {};
    return failf(ErrorCode::kInvalidArgument, "host program: {} {} is {}, need {} {}, contiguous, on {}",
                 name, idx, tandem::to_string(view), tandem::to_string(dtype), tandem::to_string(sizes),
                 tandem::to_string(device.id()));
  };
  const Named output{.name = "output", .view = &out};
  TANDEM_TRY(check_one("output", 0, out, unrolled.out_sizes));
  TANDEM_TRY(check_writable("host program", output));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    TANDEM_TRY(check_one("input", i, inputs[i], input_sizes[i]));
    const Named input{.name = "input", .idx = static_cast<int>(i), .view = &inputs[i]};
    TANDEM_TRY(check_apart("host program", output, input));
  }
  return {};
}

void Executor::Impl::bind(std::span<const TensorView> inputs, const TensorView& out) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Unrolled::Input& input = unrolled.inputs[i];
    bindings.bind(input.root, matrix_view(inputs[i], input));
  }
  bindings.bind(unrolled.out, TensorView::contiguous(out.data, unrolled.out_matrix, out.dtype, out.device));
}

Executor::Executor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executor::~Executor() = default;

Result<std::unique_ptr<Executor>> Executor::create(const HostProgram& program,
                                                   std::span<const TensorView> like, Group& group,
                                                   Device& device, int num_streams) {
  TANDEM_TRY(group.status());
  const HostProgram::Container& container = program.container();
  const auto make = [&]() -> Result<std::unique_ptr<Impl>> {
    TANDEM_TRY(check_group(container, group));
    for (const TensorView& view : like) TANDEM_TRY(byte_size(view.sizes, view.dtype, "host program: input"));
    TANDEM_ASSIGN(Unrolled unrolled, unroll_for(container, sizes_of(like), group.rank(), num_streams));
    TANDEM_TRY(check_types(container, like));
    auto made = std::make_unique<Impl>(std::move(unrolled), group, device);
    TANDEM_TRY(made->make_local(like));
    return made;
  };
  auto impl = make();
  if (!impl) return coll::refused(group, std::move(impl).error());
  Impl& made = **impl;
  made.fingerprint = fmt::format("host program {} on {} streams: {}", tandem::to_string(made.dtype),
                                 made.workers.size(), program.to_string());
  for (const Dims& sizes : made.input_sizes) made.fingerprint += tandem::to_string(sizes);
  TANDEM_TRY(made.connect());
  const TensorView out = TensorView::contiguous(nullptr, made.unrolled.out_sizes, made.dtype, device.id());
  made.bind(like, out);
  if (auto prepared = prepare(made.unrolled.program, made.bindings); !prepared) {
    return coll::refused(group, std::move(prepared).error());
  }
  return std::unique_ptr<Executor>(new Executor(*std::move(impl)));
}

Result<void> Executor::run(std::span<const TensorView> inputs, const TensorView& out, Stream& stream) {
  if (auto ok = impl_->check(inputs, out, stream); !ok)
    return coll::refused(impl_->group, std::move(ok).error());
  impl_->bind(inputs, out);
  impl_->bindings.bind_lane(kCurrent, stream);
  return coll::run_collective(
      {.group = impl_->group, .stream = stream, .fingerprint = impl_->fingerprint, .label = "host program"},
      [&](symm::Handle*) {
        return program::run(impl_->unrolled.program, impl_->bindings, &impl_->noted_steps);
      });
}

const Dims& Executor::out_sizes() const {
  return impl_->unrolled.out_sizes;
}

DType Executor::out_dtype() const {
  return impl_->dtype;
}

int Executor::num_streams() const {
  return static_cast<int>(impl_->workers.size());
}

Stream& Executor::worker(int idx) const {
  assert(idx >= 0 && idx < num_streams());
  return *impl_->workers[static_cast<std::size_t>(idx)];
}

std::string Executor::to_string() const {
  return impl_->unrolled.program.to_string();
}

}  // namespace tandem::program::host
