#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <tandem/base/convert.hpp>
#include <tandem/io/checkpoint.hpp>
#include <tandem/io/npy.hpp>
#include <tandem/io/safetensors.hpp>
#include <vector>

#include "support/io_folder.hpp"
#include "support/memory_file.hpp"

// Damaged files: each must be read or refused, never crash, whatever the damage. Run with the address
// sanitizer this also watches every byte that is touched.

namespace tandem::io {
namespace {

class Mutator {
 public:
  explicit Mutator(std::uint32_t seed) : random_(seed) {}

  std::string mutate(std::string bytes) {
    for (std::size_t count = 1 + below(4); count > 0; --count) apply_one(bytes);
    return bytes;
  }

 private:
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }
  // Nearly always in the header, where a byte means something.
  std::size_t place(const std::string& bytes) { return below(std::min<std::size_t>(bytes.size(), 260)); }

  void apply_one(std::string& bytes) {
    static const std::string kTokens[] = {"{",
                                          "}",
                                          "[",
                                          "]",
                                          "(",
                                          ")",
                                          ",",
                                          ":",
                                          "\"",
                                          "'",
                                          "\\",
                                          "\\u",
                                          "-",
                                          "0",
                                          "9",
                                          "18446744073709551615",
                                          "9223372036854775807",
                                          "4294967296",
                                          "F64",
                                          "<f8",
                                          "True",
                                          std::string(1, '\0'),
                                          "\xff",
                                          "__metadata__",
                                          "weight_map",
                                          "null",
                                          "1e9",
                                          "../",
                                          "[[[[[[[[[[[[[[[[",
                                          "\xed\xa0\x80"};
    const std::size_t at = place(bytes);
    switch (below(7)) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ (1U << below(8)));
        break;
      case 1:
        if (!bytes.empty()) bytes[at] = static_cast<char>(random_());
        break;
      case 2:
        bytes.insert(at, 1, static_cast<char>(random_()));
        break;
      case 3:
        bytes.erase(at, 1 + below(8));
        break;
      case 4:
        bytes.resize(below(bytes.size() + 1));
        break;
      case 5:
        bytes.insert(at, kTokens[below(std::size(kTokens))]);
        break;
      default:
        bytes.insert(at, bytes.substr(place(bytes), below(60)));
    }
  }

  std::mt19937 random_;
};

// Touches every element, so that one outside of the file is noticed.
double sum_of(const TensorView& view) {
  double sum = 0;
  for (std::int64_t i = 0; i < view.numel(); ++i) sum += element_as_f64(view, i) != 0 ? 1 : 0;
  return sum;
}

bool is_clean(const Error& error) {
  const bool has_code = error.code() == ErrorCode::kParse || error.code() == ErrorCode::kUnsupported ||
                        error.code() == ErrorCode::kInvalidArgument;
  return has_code && error.text().size() < 2000 && error.text().find('\n') == std::string::npos;
}

struct Tally {
  int num_read = 0;
  int num_refused = 0;
};

// Reads `count` damaged copies of `good` with `read`, which returns a Result.
template <class Read>
Tally read_damaged(const std::string& good, std::uint32_t seed, int count, Read&& read) {
  const tests::MemoryFile file;
  Mutator mutator(seed);
  Tally tally;
  for (int i = 0; i < count; ++i) {
    const std::string bytes = mutator.mutate(good);
    file.set(bytes);
    const auto result = read(file.path());
    ++(result ? tally.num_read : tally.num_refused);
    if (result) continue;
    EXPECT_TRUE(is_clean(result.error())) << "mutation " << i << ": " << result.error().to_string();
  }
  return tally;
}

// Some damage is harmless and some is not: seeing both shows that the mutations reach what they should.
void expect_both(const Tally& tally) {
  EXPECT_GT(tally.num_read, 20);
  EXPECT_GT(tally.num_refused, 1000);
}

constexpr int kMutations = 4000;

TEST(Mutation, Npy) {
  const auto read = [](const std::filesystem::path& path) {
    auto tensor = read_npy(path);
    if (tensor) sum_of(tensor->view());
    return tensor;
  };
  const std::string data(96, '\1');
  const std::string c_order = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4), }          \n";
  const std::string f_order = "{'descr': '<i8', 'fortran_order': True, 'shape': (12,), }\n";
  expect_both(read_damaged(tests::npy_file(c_order, data), 1, kMutations, read));
  expect_both(read_damaged(tests::npy_file(f_order, data, 2), 2, kMutations, read));
}

TEST(Mutation, Safetensors) {
  const auto read = [](const std::filesystem::path& path) {
    auto tensors = read_safetensors(path);
    if (tensors) {
      for (const NamedTensor& tensor : *tensors) sum_of(tensor.tensor.view());
    }
    (void)read_safetensors(path, "b");
    return tensors;
  };
  const std::string header = R"({"__metadata__":{"format":"pt","\u00e9":"x"},)"
                             R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                             R"("b\n":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},)"
                             R"("c":{"dtype":"U8","shape":[],"data_offsets":[32,33]}}  )";
  expect_both(read_damaged(tests::safetensors_file(header, std::string(33, '\1')), 3, 2 * kMutations, read));
}

// What tandem skips or judges only when asked: other keys, other types, lists for objects, names that repeat.
TEST(Mutation, SafetensorsOfOthers) {
  const auto read = [](const std::filesystem::path& path) {
    auto tensor = read_safetensors(path, "a");
    if (tensor) sum_of(tensor->view());
    for (const char* name : {"", "b", "c", "d"}) {
      const auto other = read_safetensors(path, name);
      if (other) sum_of(other->view());
    }
    return tensor;
  };
  const std::string header =
      R"({"a":{"crc":[1.5e3,{"k":null}],"dtype":"U16","shape":[4],"data_offsets":[0,8]},)"
      R"("b":["F4",[3,2],[8,11]],"c":{"dtype":{"U8":null},"shape":[1,1,1,1,1,1,1,1,3],)"
      R"("data_offsets":[11,14]},"d":{"dtype":"F3","shape":[7],"data_offsets":[14,16]},)"
      R"("a":{"dtype":"I32","shape":[2],"data_offsets":[0,8]},"__metadata__":null})";
  expect_both(read_damaged(tests::safetensors_file(header, std::string(16, '\1')), 4, 2 * kMutations, read));
}

TEST(Mutation, Index) {
  const tests::Folder folder;
  const Tensor tensor = Tensor::host({3, 5}, DType::kF32);
  ASSERT_TRUE(write_safetensors(folder / "1.safetensors", {{"x", tensor.view()}, {"y", tensor.view()}}));
  const std::string path = folder / "m.safetensors.index.json";
  const std::string good = R"({"metadata":{"total_size":60,"a":[true,{"b":-1.5}]},"weight_map":)"
                           R"({"x":"1.safetensors","z\u0061":"2.safetensors","y":"1.safetensors"}})";
  Mutator mutator(5);
  Tally tally;
  for (int i = 0; i < kMutations; ++i) {
    tests::write_bytes(path, mutator.mutate(good));
    const auto opened = Checkpoint::open(path);
    ++(opened ? tally.num_read : tally.num_refused);
    if (!opened) {
      EXPECT_TRUE(is_clean(opened.error())) << "mutation " << i << ": " << opened.error().to_string();
      continue;
    }
    for (std::size_t name = 0; name < opened->size(); ++name) {
      const auto read = opened->read(opened->name(name));
      if (read) sum_of(read->view());
      const bool is_missing = !read && read.error().code() == ErrorCode::kDriver;
      EXPECT_TRUE(read || is_missing || is_clean(read.error())) << read.error().to_string();
    }
  }
  expect_both(tally);
}

// Every prefix of a good file is refused.
TEST(Mutation, Prefixes) {
  const tests::Folder folder;
  const tests::MemoryFile file;
  const Tensor tensor = Tensor::host({3, 5}, DType::kF32);
  ASSERT_TRUE(write_npy(folder / "x.npy", tensor.view()));
  ASSERT_TRUE(write_safetensors(folder / "x.safetensors", {{"x", tensor.view()}, {"y", tensor.view()}}));
  const std::string npy = tests::read_bytes(folder / "x.npy");
  for (std::size_t size = 0; size < npy.size(); ++size) {
    file.set(npy.substr(0, size));
    const auto result = read_npy(file.path());
    ASSERT_FALSE(result.has_value()) << "the first " << size << " of " << npy.size() << " bytes";
    EXPECT_EQ(result.error().code(), ErrorCode::kParse) << result.error().to_string();
  }
  const std::string safetensors = tests::read_bytes(folder / "x.safetensors");
  for (std::size_t size = 0; size < safetensors.size(); ++size) {
    file.set(safetensors.substr(0, size));
    const auto result = read_safetensors(file.path());
    ASSERT_FALSE(result.has_value()) << "the first " << size << " of " << safetensors.size() << " bytes";
    EXPECT_EQ(result.error().code(), ErrorCode::kParse) << result.error().to_string();
  }
}

}  // namespace
}  // namespace tandem::io
