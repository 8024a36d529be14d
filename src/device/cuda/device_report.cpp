#include "device/cuda/device_report.hpp"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <string_view>

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/cuda/cuda_device.hpp"
#include "device/cuda/cuda_error.hpp"

namespace tandem::cuda {
namespace {

void erase_all(std::string& text, std::string_view piece) {
  for (auto at = text.find(piece); at != std::string::npos; at = text.find(piece))
    text.erase(at, piece.size());
}

/// "void tandem::a::(anonymous namespace)::b<T, 8>(C, int)" -> "a::b<T, 8>".
std::string short_name(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> full(
      abi::__cxa_demangle(mangled, nullptr, nullptr, &status), &std::free);
  if (status != 0) return mangled;
  std::string name = full.get();
  erase_all(name, "(anonymous namespace)::");
  erase_all(name, "tandem::");
  name = name.substr(0, name.find('('));
  return name.starts_with("void ") ? name.substr(5) : name;
}

bool has(cudaDeviceP2PAttr attribute, int from, int to) {
  int value = 0;
  if (cudaDeviceGetP2PAttribute(&value, attribute, from, to) == cudaSuccess) return value != 0;
  static_cast<void>(cudaGetLastError());
  return false;
}

bool has_both_ways(cudaDeviceP2PAttr attribute, int a, int b) {
  return has(attribute, a, b) && has(attribute, b, a);
}

}  // namespace

std::vector<std::string> describe_links() {
  std::vector<std::string> lines;
  const int count = count_devices();
  for (int a = 0; a < count; ++a) {
    for (int b = a + 1; b < count; ++b) {
      const bool access = has_both_ways(cudaDevP2PAttrAccessSupported, a, b);
      const bool atomics = has_both_ways(cudaDevP2PAttrNativeAtomicSupported, a, b);
      lines.push_back(fmt::format("{} and {}: {}, {}", a, b,
                                  access ? "peer access" : "no peer access: tandem cannot use them together",
                                  atomics ? "atomics over the link" : "no atomics over the link"));
    }
  }
  return lines;
}

Result<std::vector<std::string>> describe_kernels(const KernelList& kernels, int gpu, NameOf name_of) {
  const CurrentDevice current(gpu);
  std::vector<std::string> lines;
  for (const void* kernel : kernels) {
    cudaFuncAttributes attributes{};
    const char* name = "?";
    TANDEM_TRY(check_cuda("kernel", cudaFuncGetAttributes(&attributes, kernel)));
    TANDEM_TRY(check_cuda("kernel", cudaFuncGetName(&name, kernel)));
    const std::string_view own_name = name_of == nullptr ? std::string_view() : name_of(kernel);
    lines.push_back(fmt::format("{}: {} registers, {} bytes of local memory, {} shared",
                                own_name.empty() ? short_name(name) : std::string(own_name),
                                attributes.numRegs, attributes.localSizeBytes, attributes.sharedSizeBytes));
  }
  return lines;
}

}  // namespace tandem::cuda
