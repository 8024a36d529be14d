#include <algorithm>
#include <numeric>
#include <tandem/io/safetensors.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "io/element_writer.hpp"
#include "io/errors.hpp"
#include "io/safetensors_file.hpp"
#include "io/safetensors_header.hpp"
#include "io/text_cursor.hpp"
#include "io/utf8.hpp"
#include "io/whole_file.hpp"

namespace tandem::io {
namespace {

Result<void> check_tensors(const std::vector<NamedView>& tensors) {
  std::vector<std::string_view> names;
  for (const NamedView& tensor : tensors) {
    if (tensor.name == kMetadataKey || find_invalid_utf8(tensor.name)) {
      return failf(ErrorCode::kInvalidArgument, "tensor name '{}': need UTF-8 and not '{}'",
                   printable_name(tensor.name), kMetadataKey);
    }
    if (auto checked = check_writable(tensor.view); !checked) {
      return failf(checked.error().code(), "tensor '{}': {}", printable_name(tensor.name),
                   checked.error().text());
    }
    names.emplace_back(tensor.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return {};
  return failf(ErrorCode::kInvalidArgument, "two tensors have the name '{}'", printable_name(*twice));
}

/// The order of the tensors in the data: wide elements first, so that each is aligned without holes.
std::vector<std::size_t> data_order(const std::vector<NamedView>& tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) {
    return size_bytes(tensors[x].view.dtype) > size_bytes(tensors[y].view.dtype);
  });
  return order;
}

Result<std::string> make_header(const std::vector<NamedView>& tensors,
                                const std::vector<std::size_t>& order) {
  std::vector<TensorEntry> entries(tensors.size());
  std::uint64_t end = 0;
  for (const std::size_t idx : order) {
    const auto& [name, view] = tensors[idx];
    const std::uint64_t begin = end;
    end += static_cast<std::uint64_t>(view.size_bytes());
    entries[idx] = {name, view.dtype, view.sizes, begin, end};
  }
  std::string header = format_safetensors_header(entries);
  if (header.size() > kMaxSafetensorsHeaderBytes) {
    return failf(ErrorCode::kInvalidArgument,
                 "the header would have {} bytes, need at most {}: use several files", header.size(),
                 kMaxSafetensorsHeaderBytes);
  }
  return header;
}

}  // namespace

Result<std::vector<NamedTensor>> read_safetensors(const std::filesystem::path& path) {
  return at_edge("read_safetensors", path, [&]() -> Result<std::vector<NamedTensor>> {
    TANDEM_ASSIGN(const auto open, SafetensorsFile::open(path));
    std::vector<NamedTensor> tensors;
    tensors.reserve(open.header.size());
    for (std::size_t i = 0; i < open.header.size(); ++i) {
      auto tensor = open.tensor(i);
      if (!tensor) {
        return failf(tensor.error().code(), "{}; tensors can be read by name, without this one",
                     tensor.error().text());
      }
      tensors.push_back({std::string(open.header.name(i)), *std::move(tensor)});
    }
    return tensors;
  });
}

Result<Tensor> read_safetensors(const std::filesystem::path& path, std::string_view name) {
  return at_edge("read_safetensors", path, [&]() -> Result<Tensor> {
    TANDEM_ASSIGN(const auto open, SafetensorsFile::open(path));
    const auto name_of = [&](std::size_t idx) { return open.header.name(idx); };
    TANDEM_ASSIGN(const std::size_t idx, choose_name({open.header.size(), name_of}, name));
    return open.tensor(idx);
  });
}

Result<void> write_safetensors(const std::filesystem::path& path, const std::vector<NamedView>& tensors) {
  return at_edge("write_safetensors", path, [&]() -> Result<void> {
    TANDEM_TRY(check_tensors(tensors));
    const std::vector<std::size_t> order = data_order(tensors);
    TANDEM_ASSIGN(const std::string header, make_header(tensors, order));
    TANDEM_ASSIGN(WholeFile file, WholeFile::create(path));
    TANDEM_TRY(file.write(header.data(), header.size()));
    for (const std::size_t idx : order) {
      TANDEM_TRY(write_elements(file, tensors[idx].view, tensors[idx].view.dtype));
    }
    return file.commit();
  });
}

}  // namespace tandem::io
