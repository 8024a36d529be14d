#include "gemm/native_acceptance.hpp"

#include "gemm/backend.hpp"

namespace tandem::gemm {
namespace {

/// Whether the kernels do all that the product asks for behind its sums.
bool finishes_natively(const Product& product, std::string* why_not) {
  if (product.epilogue.accumulate) return refuse(why_not, "the native kernels do not accumulate into out");
  const std::optional<DType>& bias = product.epilogue.bias;
  if (bias && *bias != DType::kF32 && *bias != DType::kBF16 && *bias != DType::kF16)
    return refuse(why_not, "the native kernels add a bias of f32, bf16 or f16");
  const Scale b = product.b_scale;
  if (!is_f8(product.a)) {
    const bool is_scaled = product.a_scale != Scale::kNone || b != Scale::kNone;
    return !is_scaled || refuse(why_not, "the native kernels of 16 bits do not scale a or b");
  }
  const bool b_fits = b == Scale::kNone || b == Scale::kTensor ||
                      b == (product.is_scaled_along_k() ? Scale::kBlock128 : Scale::kColumn);
  return b_fits || refuse(why_not, "the native kernels scale a b along k by 128x128");
}

/// Whether the shards can be cut into pieces, and those that share tiles come in pieces from all ranks.
bool exchanges_pieces(const Product& product) {
  const PieceCut cut = piece_cut_of(product);
  const Chunks& chunks = *product.arrival;
  if (!cut.is_possible()) return false;
  return !cut.shares_tiles() || (chunks.complete == 1 && chunks.in_pieces == chunks.count - 1 &&
                                 chunks.count <= kMostPieceRanks - 1);
}

/// Whether a product's partials can go to their owners, made by a kernel or before.
bool exchanges_partials(const Product& product, std::string* why_not) {
  const Owners& owners = *product.owners;
  if (product.out != DType::kBF16 && product.out != DType::kF16)
    return refuse(why_not, "partials of native products are bf16 or f16");
  if (!can_count_partials(product.m, product.n, owners))
    return refuse(why_not, "blocks of partials are counted in 26 bits, and need another rank");
  if (owners.is_made) {
    return product.a == product.out || product.a == DType::kF32 ||
           refuse(why_not, "partials are given from f32 or out's type");
  }
  if (product.epilogue.addend) return refuse(why_not, "products that depart have no addend");
  return is_f8(product.a) || !product.epilogue.bias ||
         refuse(why_not, "the native kernels of 16 bits add a bias to the sum over ranks only");
}

}  // namespace

Product as_arrived(const Product& product, const KernelChoice& kernels, bool batch_invariant) {
  Product arrived = product;
  if (!is_there(product)) return arrived;
  arrived.arrival = Chunks{.count = 1, .complete = 1};
  if (batch_invariant && kernels.find(arrived, nullptr) == nullptr) {
    arrived.b_is_column_major = !product.b_is_column_major;
    if (kernels.find(arrived, nullptr) == nullptr) arrived.b_is_column_major = product.b_is_column_major;
  }
  return arrived;
}

bool accepts_natively(const Product& product, const NativeProducts& products, std::string* why_not) {
  const bool is_packed = products.batch_invariant && is_there(product);
  if (is_there(product) && !is_packed && !product.is_scaled_along_k()) {
    return refuse(
        why_not,
        "has products only whose left operand still arrives, whose rows go to their owners, or that "
        "are scaled along k");
  }
  if (!products.usable) return refuse(why_not, products.usable.why_not);
  if (product.arrival && product.arrival->held)
    return refuse(why_not, "the native kernels read rows where they arrive");
  if (product.tells) return refuse(why_not, "the native kernels tell nobody of rows");
  if (product.owners) {
    if (!exchanges_partials(product, why_not)) return false;
    if (product.owners->is_made) return true;
  }
  if (!has_heuristic(product, why_not)) return false;
  if (!finishes_natively(product, why_not)) return false;
  if (!is_f8(product.a) && product.a != product.out)
    return refuse(why_not, "the native kernels of 16 bits write out in the type of a");
  const bool has_pieces = product.arrival && product.arrival->in_pieces > 0;
  if (product.k == 0 || row_bytes_of(product) % 16 != 0 || product.n % 8 != 0)
    return refuse(why_not, "the native kernels need n in multiples of 8, and k in multiples of 16 bytes");
  if (has_pieces && !exchanges_pieces(product))
    return refuse(
        why_not,
        "pieces need shards of whole tiles of 128 rows, or fewer than 512 rows that all come in pieces");
  if (product.is_empty()) return true;
  // Tensor maps take addresses and strides of whole 16 bytes.
  if (!product.is_aligned && !is_packed)
    return refuse(why_not, "the native kernels need operands that begin at multiples of 16 bytes");
  constexpr std::int64_t kMost = INT32_MAX;
  if (product.m > kMost || product.n > kMost || product.k > kMost)
    return refuse(why_not, "the native kernels count rows and columns in 31 bits");
  if (product.n == 0) return true;
  return products.kernels.find(as_arrived(product, products.kernels, products.batch_invariant), why_not) !=
         nullptr;
}

std::optional<double> native_product_us(const Product& product, const KernelChoice& kernels,
                                        bool batch_invariant, const cost::GpuRates& gpu) {
  const Product arriving = as_arrived(product, kernels, batch_invariant);
  const ResidentKernel* const kernel = kernels.find(arriving, nullptr);
  if (kernel == nullptr) return std::nullopt;
  return predicted_us(*kernel, arriving, gpu);
}

}  // namespace tandem::gemm
