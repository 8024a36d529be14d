#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <memory>

#include "base/shared_library.hpp"
#include "failure.hpp"
#include "peers/peer.hpp"

namespace tandem::cli {
namespace {

// Of oneDNN's C interface, versions 2: handles are pointers, and descriptors are plain bytes that its own
// functions fill, so that their sizes matter and their contents do not.
using Handle = void*;
constexpr int kVersion = 2;
struct alignas(16) Descriptor {
  std::byte bytes[4096];  // 2.6: a memory descriptor has 696 bytes, a matmul descriptor 2800
};
struct Argument {
  int which;
  Handle memory;
};
struct Version {
  int major;
  int minor;
  int patch;
};
constexpr int kCpu = 1;
constexpr unsigned kInOrder = 1;
constexpr int kF16 = 1;
constexpr int kBf16 = 2;
constexpr int kF32 = 3;
constexpr int kAny = 1;
constexpr int kRowMajor = 3;
constexpr int kColumnMajor = 22;
constexpr int kQueryWeights = 131;
constexpr int kSource = 1;  // also what a reorder reads
constexpr int kWeights = 33;
constexpr int kDestination = 17;  // also what a reorder writes

struct Functions {
  const Version* (*version)();
  int (*engine_create)(Handle* engine, int kind, std::size_t idx);
  int (*stream_create)(Handle* stream, Handle engine, unsigned flags);
  int (*stream_wait)(Handle stream);
  int (*memory_desc_init_by_tag)(Descriptor* desc, int num_dims, const std::int64_t* sizes, int dtype,
                                 int tag);
  std::size_t (*memory_desc_get_size)(const Descriptor* desc);
  int (*memory_create)(Handle* memory, const Descriptor* desc, Handle engine, void* data);
  int (*memory_destroy)(Handle memory);
  int (*matmul_desc_init)(Descriptor* desc, const Descriptor* a, const Descriptor* b, const Descriptor* bias,
                          const Descriptor* out);
  int (*primitive_desc_create)(Handle* desc, const Descriptor* op, Handle attributes, Handle engine,
                               Handle hint);
  const Descriptor* (*primitive_desc_query_md)(Handle desc, int what, int idx);
  int (*primitive_desc_destroy)(Handle desc);
  int (*reorder_primitive_desc_create)(Handle* desc, const Descriptor* from, Handle from_engine,
                                       const Descriptor* to, Handle to_engine, Handle attributes);
  int (*primitive_create)(Handle* primitive, Handle desc);
  int (*primitive_destroy)(Handle primitive);
  int (*primitive_execute)(Handle primitive, Handle stream, int num_arguments, const Argument* arguments);
  void (*set_num_threads)(int count);  ///< of OpenMP
};

/// What all products share. It lives as long as the process, like the library.
struct Engine {
  Functions functions{};
  std::string path;
  Handle engine = nullptr;
  Handle stream = nullptr;
};

void check(int status, const char* what) {
  if (status != 0) not_supported(fmt::format("oneDNN: {} returned {}", what, status));
}

Descriptor matrix(const Engine& engine, std::int64_t rows, std::int64_t columns, int dtype, int tag) {
  Descriptor desc;
  const std::array<std::int64_t, 2> sizes = {rows, columns};
  check(engine.functions.memory_desc_init_by_tag(&desc, 2, sizes.data(), dtype, tag),
        "a matrix's description");
  return desc;
}

int dtype_of(DType dtype) {
  return dtype == DType::kF32 ? kF32 : dtype == DType::kBF16 ? kBf16 : kF16;
}

class Product final : public PeerProduct {
 public:
  Product(const Engine& engine, const PeerOperands& operands, bool is_packed) : engine_(engine) {
    const int dtype = dtype_of(operands.dtype);
    const Descriptor a = matrix(engine, operands.m, operands.k, dtype, kRowMajor);
    const Descriptor b =
        matrix(engine, operands.k, operands.n, dtype, operands.b_is_column_major ? kColumnMajor : kRowMajor);
    const Descriptor any = matrix(engine, operands.k, operands.n, dtype, kAny);
    const Descriptor out = matrix(engine, operands.m, operands.n, dtype, kRowMajor);
    const Functions& call = engine_.functions;
    Descriptor matmul;
    check(call.matmul_desc_init(&matmul, &a, is_packed ? &any : &b, nullptr, &out),
          "a product's description");
    Handle desc = nullptr;
    check(call.primitive_desc_create(&desc, &matmul, nullptr, engine_.engine, nullptr),
          fmt::format("a product of {}", to_string(operands.dtype)).c_str());
    check(call.primitive_create(&primitive_, desc), "a product");
    memories_[0] = make_memory(a, const_cast<void*>(operands.a));
    memories_[1] = make_memory(b, const_cast<void*>(operands.b));
    memories_[2] = make_memory(out, operands.out);
    if (is_packed) pack(b, *call.primitive_desc_query_md(desc, kQueryWeights, 0));
    call.primitive_desc_destroy(desc);
  }
  ~Product() override {
    engine_.functions.primitive_destroy(primitive_);
    for (const Handle memory : memories_) engine_.functions.memory_destroy(memory);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  void run() override {
    const std::array<Argument, 3> arguments = {
        {{kSource, memories_[0]}, {kWeights, memories_[1]}, {kDestination, memories_[2]}}};
    execute(primitive_, arguments);
  }

 private:
  [[nodiscard]] Handle make_memory(const Descriptor& desc, void* data) const {
    Handle memory = nullptr;
    check(engine_.functions.memory_create(&memory, &desc, engine_.engine, data), "a matrix");
    return memory;
  }
  template <std::size_t kCount>
  void execute(Handle primitive, const std::array<Argument, kCount>& arguments) const {
    check(engine_.functions.primitive_execute(primitive, engine_.stream, kCount, arguments.data()), "a call");
    check(engine_.functions.stream_wait(engine_.stream), "the end of a call");
  }
  /// Puts b into the order that the product likes best.
  void pack(const Descriptor& b, const Descriptor& packed) {
    const Functions& call = engine_.functions;
    packed_.resize(call.memory_desc_get_size(&packed) / sizeof(packed_[0]) + 1);
    const Handle to = make_memory(packed, packed_.data());
    Handle desc = nullptr;
    Handle reorder = nullptr;
    check(call.reorder_primitive_desc_create(&desc, &b, engine_.engine, &packed, engine_.engine, nullptr),
          "a packed weight's description");
    check(call.primitive_create(&reorder, desc), "the packing of a weight");
    execute(reorder, std::array<Argument, 2>{{{kSource, memories_[1]}, {kDestination, to}}});
    call.primitive_destroy(reorder);
    call.primitive_desc_destroy(desc);
    call.memory_destroy(memories_[1]);
    memories_[1] = to;
  }

  struct alignas(64) Line {
    std::byte bytes[64];
  };
  const Engine& engine_;
  Handle primitive_ = nullptr;
  std::array<Handle, 3> memories_{};  ///< a, b, out
  std::vector<Line> packed_;
};

class OneDnn final : public Peer {
 public:
  OneDnn(std::shared_ptr<const Engine> engine, bool is_packed)
      : engine_(std::move(engine)), is_packed_(is_packed) {}
  [[nodiscard]] std::string name() const override { return is_packed_ ? "onednn_packed" : "onednn"; }
  [[nodiscard]] std::string description() const override {
    const Version& version = *engine_->functions.version();
    return fmt::format("oneDNN {}.{}.{}, {}", version.major, version.minor, version.patch, engine_->path);
  }
  void use_threads(int count) override { engine_->functions.set_num_threads(count); }
  using Peer::prepare;
  [[nodiscard]] std::unique_ptr<PeerProduct> prepare(const PeerOperands& operands) override {
    return std::make_unique<Product>(*engine_, operands, is_packed_);
  }

 private:
  std::shared_ptr<const Engine> engine_;
  bool is_packed_;
};

void find_functions(const SharedLibrary& library, Functions& call) {
  take(library.find("dnnl_version", call.version));
  take(library.find("dnnl_engine_create", call.engine_create));
  take(library.find("dnnl_stream_create", call.stream_create));
  take(library.find("dnnl_stream_wait", call.stream_wait));
  take(library.find("dnnl_memory_desc_init_by_tag", call.memory_desc_init_by_tag));
  take(library.find("dnnl_memory_desc_get_size", call.memory_desc_get_size));
  take(library.find("dnnl_memory_create", call.memory_create));
  take(library.find("dnnl_memory_destroy", call.memory_destroy));
  take(library.find("dnnl_matmul_desc_init", call.matmul_desc_init));
  take(library.find("dnnl_primitive_desc_create", call.primitive_desc_create));
  take(library.find("dnnl_primitive_desc_query_md", call.primitive_desc_query_md));
  take(library.find("dnnl_primitive_desc_destroy", call.primitive_desc_destroy));
  take(library.find("dnnl_reorder_primitive_desc_create", call.reorder_primitive_desc_create));
  take(library.find("dnnl_primitive_create", call.primitive_create));
  take(library.find("dnnl_primitive_destroy", call.primitive_destroy));
  take(library.find("dnnl_primitive_execute", call.primitive_execute));
  // The library's own threads: without OpenMP their number could not be set.
  take(library.find("omp_set_num_threads", call.set_num_threads));
}

}  // namespace

Peers load_onednn(const std::optional<std::string>& path) {
  constexpr std::string_view kFolders[] = {"/usr/local/lib"};
  const SharedLibrary library = take(SharedLibrary::load({.name = "oneDNN",
                                                          .soname = "libdnnl.so.2",
                                                          .variable = "--peers onednn",
                                                          .path = path,
                                                          .folders = kFolders}));
  auto engine = std::make_shared<Engine>();
  engine->path = library.path();
  find_functions(library, engine->functions);
  if (const int major = engine->functions.version()->major; major != kVersion)
    not_supported(fmt::format("oneDNN: need a version {}, {} is {}", kVersion, library.path(), major));
  check(engine->functions.engine_create(&engine->engine, kCpu, 0), "an engine");
  check(engine->functions.stream_create(&engine->stream, engine->engine, kInOrder), "a stream");
  Peers peers;
  for (const bool is_packed : {false, true}) peers.push_back(std::make_unique<OneDnn>(engine, is_packed));
  return peers;
}

}  // namespace tandem::cli
