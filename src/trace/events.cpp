#include <tandem/trace/events.hpp>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem::trace {
namespace {

/// Numbers and texts, one behind the other, as they lie in memory.
class Writer {
 public:
  template <class T>
  void add(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    add_bytes(&value, sizeof(T));
  }
  void add(const std::string& text) {
    add(text.size());
    add_bytes(text.data(), text.size());
  }
  template <class T>
  void add(const std::vector<T>& all) {
    add(all.size());
    for (const T& one : all) add(one);
  }
  [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void add_bytes(const void* data, std::size_t num_bytes) {
    const auto* const begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + num_bytes);
  }
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  Result<void> read(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    TANDEM_TRY(need(sizeof(T)));
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_ = bytes_.subspan(sizeof(T));
    return {};
  }
  Result<void> read(std::string& text) {
    TANDEM_ASSIGN(const std::size_t size, read_size());
    text.assign(reinterpret_cast<const char*>(bytes_.data()), size);
    bytes_ = bytes_.subspan(size);
    return {};
  }
  template <class T>
  Result<void> read(std::vector<T>& all) {
    TANDEM_ASSIGN(const std::size_t size, read_size());
    all.resize(size);
    for (T& one : all) TANDEM_TRY(read(one));
    return {};
  }
  Result<void> end() const {
    if (bytes_.empty()) return {};
    return failf(ErrorCode::kParse, "events of a rank: {} bytes behind their end", bytes_.size());
  }

 private:
  /// Of what has at least one byte each.
  Result<std::size_t> read_size() {
    std::size_t size = 0;
    TANDEM_TRY(read(size));
    TANDEM_TRY(need(size));
    return size;
  }
  Result<void> need(std::size_t num_bytes) const {
    if (num_bytes <= bytes_.size()) return {};
    return failf(ErrorCode::kParse, "events of a rank: they end {} bytes early", num_bytes - bytes_.size());
  }
  std::span<const std::byte> bytes_;
};

TextId moved(TextId id, const std::vector<TextId>& to) {
  return id == kNoText ? kNoText : to[static_cast<std::size_t>(id)];
}

}  // namespace

std::string_view to_string(Category category) {
  switch (category) {
    case Category::kProduct:
      return "product";
    case Category::kCopy:
      return "copy";
    case Category::kSum:
      return "sum";
    case Category::kWait:
      return "wait";
    case Category::kCheck:
      return "check";
    case Category::kOther:
      break;
  }
  return "other";
}

TextId RankEvents::add_text(std::string_view text) {
  const auto [found, is_unknown] = ids_.try_emplace(std::string(text), static_cast<TextId>(texts_.size()));
  if (is_unknown) texts_.emplace_back(text);
  return found->second;
}

void RankEvents::append(const RankEvents& later) {
  std::vector<TextId> ids;
  for (const std::string& text : later.texts_) ids.push_back(add_text(text));
  const std::int32_t first_call = num_calls;
  const auto first_event = static_cast<std::int32_t>(events.size());
  for (Call call : later.calls) {
    call.number += first_call;
    for (TextId* id : {&call.op, &call.algorithm, &call.schedule}) *id = moved(*id, ids);
    calls.push_back(call);
  }
  for (Event event : later.events) {
    event.call += first_call;
    if (event.within >= 0) event.within += first_event;
    for (TextId* id : {&event.step, &event.notation, &event.stream}) *id = moved(*id, ids);
    events.push_back(event);
  }
  num_calls += later.num_calls;
  num_dropped += later.num_dropped;
  num_unseen_calls += later.num_unseen_calls;
  uncertainty_ns = std::max(uncertainty_ns, later.uncertainty_ns);
  clock = later.clock;
  device = later.device;
  backend = later.backend;
}

std::vector<std::byte> RankEvents::to_bytes() const {
  Writer writer;
  writer.add(rank);
  writer.add(num_calls);
  writer.add(num_dropped);
  writer.add(num_unseen_calls);
  writer.add(uncertainty_ns);
  for (const std::string* text : {&clock, &device, &backend}) writer.add(*text);
  writer.add(texts_);
  writer.add(calls);
  writer.add(events);
  return writer.take();
}

Result<RankEvents> RankEvents::from_bytes(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  RankEvents read;
  TANDEM_TRY(reader.read(read.rank));
  TANDEM_TRY(reader.read(read.num_calls));
  TANDEM_TRY(reader.read(read.num_dropped));
  TANDEM_TRY(reader.read(read.num_unseen_calls));
  TANDEM_TRY(reader.read(read.uncertainty_ns));
  for (std::string* text : {&read.clock, &read.device, &read.backend}) TANDEM_TRY(reader.read(*text));
  std::vector<std::string> texts;
  TANDEM_TRY(reader.read(texts));
  for (const std::string& text : texts) read.add_text(text);
  TANDEM_TRY(reader.read(read.calls));
  TANDEM_TRY(reader.read(read.events));
  TANDEM_TRY(reader.end());
  return read;
}

}  // namespace tandem::trace
