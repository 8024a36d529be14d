#include "fused/slice_order.hpp"

#include <algorithm>

#include "base/try.hpp"

namespace tandem::fused {

Result<void> make_marks(SliceMarks& marks, int world, Device& device) {
  while (static_cast<int>(marks.arrived.size()) < world) {
    TANDEM_ASSIGN(auto mark, device.create_mark());
    marks.arrived.push_back(std::move(mark));
  }
  if (!marks.summed) {
    TANDEM_ASSIGN(marks.summed, device.create_mark());
  }
  marks.is_here.resize(marks.arrived.size());
  return {};
}

SliceOrder::SliceOrder(SliceMarks& marks, int world, AddSlice add) : marks_(marks), world_(world), add_(add) {
  std::fill(marks.is_here.begin(), marks.is_here.end(), char{0});
}

Result<void> SliceOrder::arrived(int source, Stream& stream) {
  TANDEM_TRY(stream.record(*marks_.arrived[static_cast<std::size_t>(source)]));
  marks_.is_here[static_cast<std::size_t>(source)] = 1;
  if (source != next_) return {};

  if (next_ > 0) TANDEM_TRY(stream.wait(*marks_.summed));
  for (; next_ < world_ && marks_.is_here[static_cast<std::size_t>(next_)] != 0; ++next_) {
    TANDEM_TRY(stream.wait(*marks_.arrived[static_cast<std::size_t>(next_)]));
    TANDEM_TRY(add_(next_, stream));
  }
  return stream.record(*marks_.summed);
}

}  // namespace tandem::fused
