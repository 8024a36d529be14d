#include <cstdint>
#include <cstdio>
#include <string>
#include <tandem/tandem.hpp>

#include "run_ranks.hpp"

// Two ranks write into each other's memory. Rank 1 fills rank 0's buffer with 42 through a pointer to it and
// signals; then it copies 43 into it and both meet at a barrier.
//
//   ./example_two_ranks               the ranks are threads
//   ./example_two_ranks --processes   the ranks are processes

namespace {

constexpr std::int64_t kCount = 1024;

tandem::Result<void> expect_all(const tandem::TensorView& view, std::int32_t want) {
  for (std::int64_t i = 0; i < view.numel(); ++i) {
    const std::int32_t got = view.data_as<std::int32_t>()[i];
    if (got == want) continue;
    return tandem::fail(
        tandem::ErrorCode::kInternal,
        "element " + std::to_string(i) + " is " + std::to_string(got) + ", expected " + std::to_string(want));
  }
  std::printf("rank 0 sees %d in all %lld elements\n", static_cast<int>(want),
              static_cast<long long>(view.numel()));
  return {};
}

// value() throws when a call failed; the library's caller turns that into an error of this rank.
tandem::Result<void> rank_main(tandem::Group& group) {
  auto device = tandem::open_device({tandem::DeviceKind::kCpu, 0}, group.config()).value();
  auto stream = device->create_stream().value();
  const auto mine = tandem::symm::empty({kCount}, tandem::DType::kI32, *device).value();
  const auto handle = tandem::symm::rendezvous(mine, group).value();
  const auto buffer_of_0 = handle->get_buffer(0, {kCount}, tandem::DType::kI32).value();
  const int channel = tandem::symm::kFirstUserChannel;

  if (group.rank() == 1) {
    // 42 as a fill by the stream: the words are i32, the fill counts in u32.
    const auto words = handle->get_buffer(0, {kCount}, tandem::DType::kU32).value();
    if (auto done = stream->memset32(words, 0, 42, kCount); !done) return done;
    if (auto done = handle->put_signal(*stream, 0, channel); !done) return done;
  } else {
    if (auto done = handle->wait_signal(*stream, 1, channel); !done) return done;
    if (auto done = stream->synchronize(); !done) return done;
    if (auto done = expect_all(buffer_of_0, 42); !done) return done;
  }
  // Rank 0 has looked before rank 1 overwrites.
  if (auto done = handle->barrier(*stream, channel); !done) return done;

  const auto ordinary = device->allocate_tensor({kCount}, tandem::DType::kI32).value();
  for (std::int64_t i = 0; i < kCount; ++i) ordinary.view().data_as<std::int32_t>()[i] = 43;
  if (group.rank() == 1) {
    if (auto done = stream->copy(ordinary.view(), buffer_of_0); !done) return done;
  }
  if (auto done = handle->barrier(*stream, channel); !done) return done;
  if (auto done = stream->synchronize(); !done) return done;
  return group.rank() == 0 ? expect_all(mine.view(), 43) : tandem::Result<void>{};
}

}  // namespace

int main(int argc, char** argv) {
  return example_main(argc, argv, 2, rank_main);
}
