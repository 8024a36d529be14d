#include <tandem/io/checkpoint.hpp>

#include "fuzz/check.hpp"
#include "fuzz/parsers.hpp"
#include "fuzz/scratch_folder.hpp"

namespace tandem::fuzz {

bool try_weight_index(std::string_view bytes) {
  static const ScratchFolder folder;
  folder.put("m.safetensors.index.json", bytes);
  const auto opened = io::Checkpoint::open(folder.path() / "m.safetensors.index.json");
  if (!opened) {
    check_refusal(opened.error().text(), {": byte ", "has no 'weight_map'", "two entries have the name"});
    return false;
  }
  // There are no files: nothing may be read, whatever names lead out of the folder.
  constexpr std::size_t kMostNames = 16;
  for (std::size_t i = 0; i < std::min(opened->size(), kMostNames); ++i) {
    const auto tensor = opened->read(opened->name(i));
    if (tensor) throw std::logic_error("a tensor is read where there is no file");
    check_refusal(tensor.error().text(), {"m.safetensors.index.json", ".safetensors'", "tensor '"});
  }
  return true;
}

}  // namespace tandem::fuzz
