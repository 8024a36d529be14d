#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tandem/symm/symmetric_memory.hpp>
#include <utility>
#include <vector>

#include "conformance/device_backends.hpp"

// Memory goes while a stream has yet to use it; streams, devices and events go in any order.

namespace tandem::test {
namespace {

constexpr std::int64_t kWords = 1 << 12;
using Words = std::vector<std::uint32_t>;

/// Each way to have memory of a device.
struct Source {
  std::string name;
  std::function<Result<Tensor>(Device&)> make;
};
const std::vector<Source>& sources() {
  static const std::vector<Source> all = {
      {"allocate",
       [](Device& device) -> Result<Tensor> {
         auto buffer = device.allocate(kWords * 4);
         if (!buffer) return tl::unexpected(buffer.error());
         return Tensor(TensorView::contiguous(buffer->data(), {kWords}, DType::kU32, device.id()),
                       buffer->owner());
       }},
      {"allocate_tensor", [](Device& device) { return device.allocate_tensor({kWords}, DType::kU32); }},
      {"symm_empty", [](Device& device) { return symm::empty({kWords}, DType::kU32, device); }}};
  return all;
}

class DeviceLifetimeTest : public DeviceTest {
 protected:
  Tensor filled(const Source& source, std::uint32_t value) {
    auto tensor = source.make(*device_);
    EXPECT_TRUE(tensor.has_value()) << tensor.error().to_string();
    const Words words(kWords, value);
    EXPECT_TRUE(succeeds(device_->copy_from_host(words.data(), tensor->view())));
    return *std::move(tensor);
  }
  /// As much as was given back, and more, each full of `value`.
  std::vector<Tensor> take_again(const Source& source, std::uint32_t value) {
    std::vector<Tensor> all;
    for (int i = 0; i < 8; ++i) all.push_back(filled(source, value));
    return all;
  }
};

TEST_P(DeviceLifetimeTest, MemoryThatGoesIsReadByWhatWasQueuedBefore) {
  for (const Source& source : sources()) {
    SCOPED_TRACE(source.name);
    const Tensor to = make_words(Words(kWords, 0));
    auto gate = hold(*stream_);
    {
      const Tensor from = filled(source, 7);
      ASSERT_TRUE(succeeds(stream_->copy(from.view(), to.view())));
    }
    const auto others = take_again(source, 9);
    gate->open();
    ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
    EXPECT_EQ(read_words(to.view()), Words(kWords, 7));
  }
}

TEST_P(DeviceLifetimeTest, MemoryThatGoesIsWrittenByWhatWasQueuedBeforeAndNobodyElsesIs) {
  for (const Source& source : sources()) {
    SCOPED_TRACE(source.name);
    auto gate = hold(*stream_);
    // On another stream, which waits for the first: whose work it is does not matter.
    ASSERT_TRUE(succeeds(other_->wait(*stream_)));
    {
      const Tensor gone = filled(source, 1);
      ASSERT_TRUE(succeeds(other_->memset32(gone.view(), 0, 5, kWords)));
    }
    const auto others = take_again(source, 9);
    gate->open();
    ASSERT_TRUE(succeeds(other_->synchronize(soon())));
    for (const Tensor& other : others) EXPECT_EQ(read_words(other.view()), Words(kWords, 9));
  }
}

TEST_P(DeviceLifetimeTest, MemoryIsThereAgainOnceTheWorkHasRun) {
  for (const Source& source : sources()) {
    SCOPED_TRACE(source.name);
    auto gate = hold(*stream_);
    std::weak_ptr<void> owner;
    {
      const Tensor gone = filled(source, 1);
      owner = gone.owner();
    }
    EXPECT_TRUE(owner.expired()) << "nobody waits for a free";
    gate->open();
    ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
    const Tensor next = filled(source, 3);
    EXPECT_EQ(read_words(next.view()), Words(kWords, 3));
  }
}

TEST_P(DeviceLifetimeTest, StreamsAndMemoryAndEventsGoInAnyOrder) {
  struct All {
    std::unique_ptr<Device> device;
    std::unique_ptr<Stream> stream, side;
    std::optional<Tensor> from, to;
    std::unique_ptr<Event> event;
  };
  using Step = void (*)(All&);
  constexpr Step kTensors = [](All& all) { all.from.reset(), all.to.reset(); };
  constexpr Step kStream = [](All& all) { all.stream.reset(); };
  constexpr Step kSide = [](All& all) { all.side.reset(); };
  constexpr Step kEvent = [](All& all) { all.event.reset(); };
  constexpr Step kDevice = [](All& all) { all.device.reset(); };
  const std::vector<Step> orders[] = {{kTensors, kStream, kSide, kEvent, kDevice},
                                      {kStream, kTensors, kEvent, kSide, kDevice},
                                      {kSide, kStream, kDevice, kTensors, kEvent},
                                      {kEvent, kSide, kTensors, kStream, kDevice},
                                      {kEvent, kStream, kSide, kDevice, kTensors}};
  for (const Source& source : sources()) {
    for (const auto& order : orders) {
      All all;
      all.device = GetParam().open(device_->config()).value();
      all.stream = all.device->create_stream().value();
      all.side = all.device->create_stream().value();
      all.event = all.device->create_event().value();
      all.from = source.make(*all.device).value();
      all.to = source.make(*all.device).value();
      ASSERT_TRUE(succeeds(all.stream->sleep(std::chrono::milliseconds(20))));
      ASSERT_TRUE(succeeds(all.stream->copy(all.from->view(), all.to->view())));
      ASSERT_TRUE(succeeds(all.stream->record(*all.event)));
      ASSERT_TRUE(succeeds(all.side->wait(*all.event)));
      ASSERT_TRUE(succeeds(all.side->memset32(all.from->view(), 0, 1, kWords)));
      for (const Step step : order) step(all);
    }
  }
}

TEST_P(DeviceLifetimeTest, AStreamThatGoesHasFinished) {
  const Tensor words = make_words(Words(kWords, 0));
  {
    const auto stream = make_stream();
    ASSERT_TRUE(succeeds(stream->sleep(std::chrono::milliseconds(20))));
    ASSERT_TRUE(succeeds(stream->memset32(words.view(), 0, 4, kWords)));
  }
  EXPECT_EQ(read_words(words.view()), Words(kWords, 4));
}

TEST_P(DeviceLifetimeTest, AGraphsLastLaunchHasItsMemory) {
  if (GetParam().name == "cpu") GTEST_SKIP() << "no graphs there";
  const Tensor to = make_words(Words(kWords, 0));
  auto gate = hold(*stream_);
  std::unique_ptr<Graph> graph;
  {
    const Tensor from = filled(sources()[1], 7);
    ASSERT_TRUE(succeeds(other_->begin_capture()));
    ASSERT_TRUE(succeeds(other_->copy(from.view(), to.view())));
    graph = other_->end_capture().value();
    ASSERT_TRUE(succeeds(graph->launch(*stream_)));
  }
  const auto others = take_again(sources()[1], 9);
  graph.reset();
  gate->open();
  ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
  EXPECT_EQ(read_words(to.view()), Words(kWords, 7));
}

TANDEM_ON_ALL_DEVICES(DeviceLifetimeTest);

}  // namespace
}  // namespace tandem::test
