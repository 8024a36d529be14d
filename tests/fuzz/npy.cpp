#include <cmath>
#include <tandem/base/convert.hpp>
#include <tandem/io/npy.hpp>

#include "fuzz/check.hpp"
#include "fuzz/parsers.hpp"
#include "fuzz/scratch_folder.hpp"
#include "support/memory_file.hpp"

namespace tandem::fuzz {
namespace {

/// Touches all elements: an address sanitizer sees one outside of the file.
void check_equal(const TensorView& x, const TensorView& y) {
  check(x.sizes == y.sizes && x.dtype == y.dtype, "written and read with another shape or type");
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double first = element_as_f64(x, i);
    const double again = element_as_f64(y, i);
    check(first == again || (std::isnan(first) && std::isnan(again)), "written and read as another element");
  }
}

}  // namespace

bool try_npy(std::string_view bytes) {
  static const tests::MemoryFile file;
  static const ScratchFolder folder;
  file.set(bytes);
  const auto tensor = io::read_npy(file.path());
  if (!tensor) {
    check_refusal(tensor.error().text(),
                  {": byte ", "cut off after ", "the file is empty", "more than 2^63 - 1 bytes"});
    return false;
  }
  const auto written = io::write_npy(folder.path() / "x.npy", tensor->view());
  check(written.has_value(), "what was read is not written");
  const auto again = io::read_npy(folder.path() / "x.npy");
  check(again.has_value(), "what was written is not read");
  check_equal(tensor->view(), again->view());
  return true;
}

}  // namespace tandem::fuzz
