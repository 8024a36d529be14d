#include "gemm/cpu/four_bit_implementation.hpp"

#include <tandem/cpu/launch.hpp>

namespace tandem::gemm::cpu {

bool FourBitImplementation::accepts(const Product& product, std::string* why_not) const {
  if (product.b_scale != Scale::kGroup) return refuse(why_not, "multiplies by 4-bit weights alone");
  return usable_.ok || refuse(why_not, usable_.why_not);
}

Result<void> FourBitImplementation::run(const Product& product, const ProductArgs& args,
                                        Stream& stream) const {
  return tandem::cpu::launch(
      stream, tandem::cpu::Task([task = four_bit_product_of(product, args), kernels = &kernels_] {
        return cpu::run(task, *kernels);
      }));
}

Support with_vnni(Support usable) {
#if defined(__x86_64__)
  if (usable.ok && !__builtin_cpu_supports("avx512vnni"))
    return Support::no("this processor has no AVX512_VNNI");
#endif
  return usable;
}

}  // namespace tandem::gemm::cpu
