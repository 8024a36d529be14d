#include <cstring>
#include <tandem/io/safetensors.hpp>

#include "fuzz/check.hpp"
#include "fuzz/parsers.hpp"
#include "fuzz/scratch_folder.hpp"
#include "support/memory_file.hpp"

namespace tandem::fuzz {
namespace {

void check_refused(const Error& error) {
  check_refusal(error.text(), {": byte ", ": bytes ", "tensor '", "tensors '", "the file is empty",
                               " bytes are no .safetensors file", "need a name"});
}

/// Touches all elements: an address sanitizer sees one outside of the file.
void check_equal(const Tensor& x, const Tensor& y) {
  check(x.sizes() == y.sizes() && x.dtype() == y.dtype(), "written and read with another shape or type");
  const auto size_bytes = static_cast<std::size_t>(x.view().size_bytes());
  check(size_bytes == 0 || std::memcmp(x.view().data, y.view().data, size_bytes) == 0,
        "written and read as other elements");
}

void check_written(const std::vector<io::NamedTensor>& tensors) {
  static const ScratchFolder folder;
  std::vector<io::NamedView> views;
  for (const auto& [name, tensor] : tensors) views.push_back({name, tensor.view()});
  const auto written = io::write_safetensors(folder.path() / "x.safetensors", views);
  check(written.has_value(), "what was read is not written");
  const auto again = io::read_safetensors(folder.path() / "x.safetensors");
  check(again && again->size() == tensors.size(), "what was written is not read");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    check((*again)[i].name == tensors[i].name, "written and read with another name");
    check_equal((*again)[i].tensor, tensors[i].tensor);
  }
}

}  // namespace

bool try_safetensors(std::string_view bytes) {
  static const tests::MemoryFile file;
  file.set(bytes);
  const auto tensors = io::read_safetensors(file.path());
  // Judges only the tensor that is asked for.
  for (const char* name : {"", "a"}) {
    const auto one = io::read_safetensors(file.path(), name);
    check(one || !tensors || one.error().code() == ErrorCode::kInvalidArgument,
          "a tensor is refused that was read with all others");
  }
  if (!tensors) {
    check_refused(tensors.error());
    return false;
  }
  for (const auto& [name, tensor] : *tensors) {
    if (name.empty()) continue;  // asks for the only one
    const auto one = io::read_safetensors(file.path(), name);
    check(one.has_value(), "a tensor that is there is not found by its name");
    check_equal(*one, tensor);
  }
  check_written(*tensors);
  return true;
}

}  // namespace tandem::fuzz
