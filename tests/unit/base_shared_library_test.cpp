// Where libraries are looked for, with one that every machine has.
#include "base/shared_library.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <string>

namespace tandem {
namespace {

constexpr std::string_view kVariable = "TANDEM_TEST_LIBRARY";

// The C library's own mathematics, as the loader finds it.
SharedLibrary mathematics() {
  return SharedLibrary::load(
             {.name = "libm", .soname = "libm.so.6", .variable = kVariable, .path = {}, .folders = {}})
      .value();
}

TEST(SharedLibrary, IsFoundBySonameAndSaysItsPath) {
  const SharedLibrary library = mathematics();
  EXPECT_TRUE(std::filesystem::exists(library.path())) << library.path();
  double (*cosine)(double) = nullptr;
  ASSERT_TRUE(library.find("cos", cosine));
  EXPECT_EQ(cosine(0.0), 1.0);
  void (*nothing)() = nullptr;
  const auto missing = library.find("tandem_has_no_such_function", nothing);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(missing.error().text(), library.path() + " has no tandem_has_no_such_function");
}

TEST(SharedLibrary, IsFoundInFoldersThatMatchAPattern) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("tandem_library_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder / "b" / "lib");
  const auto file = folder / "b" / "lib" / "libtandem_only_here.so.1";
  std::filesystem::copy_file(mathematics().path(), file, std::filesystem::copy_options::overwrite_existing);
  const std::string missing = folder / "a" / "lib";
  const std::string pattern = folder / "*" / "lib";
  const std::string_view folders[] = {missing, pattern};
  const auto library = SharedLibrary::load({.name = "copy",
                                            .soname = "libtandem_only_here.so.1",
                                            .variable = kVariable,
                                            .path = {},
                                            .folders = folders});
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(library) << library.error().to_string();
  EXPECT_EQ(library->path(), file);
}

TEST(SharedLibrary, APathFromTheConfigIsTheOnlyPlace) {
  const auto library = SharedLibrary::load({.name = "libm",
                                            .soname = "libm.so.6",
                                            .variable = kVariable,
                                            .path = "/nowhere/libm.so.6",
                                            .folders = nvidia_library_folders()});
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(
      library.error().text().find("libm cannot be loaded from TANDEM_TEST_LIBRARY='/nowhere/libm.so.6': "),
      0U)
      << library.error().text();
}

TEST(SharedLibrary, AMissingOneSaysWhatWasTried) {
  const std::string_view folders[] = {"/nowhere", "/nor/here/*"};
  const auto library = SharedLibrary::load({.name = "Nothing",
                                            .soname = "libtandem_nothing.so.1",
                                            .variable = kVariable,
                                            .path = {},
                                            .folders = folders});
  ASSERT_FALSE(library);
  for (const char* piece : {"Nothing was not found", "libtandem_nothing.so.1", "/nowhere, /nor/here/*",
                            "TANDEM_TEST_LIBRARY may name the file"}) {
    EXPECT_NE(library.error().text().find(piece), std::string::npos) << library.error().text();
  }
}

}  // namespace
}  // namespace tandem
