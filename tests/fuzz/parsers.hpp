#pragma once

#include <string_view>

// The parsers of tandem, each with what holds whatever bytes come. What was read can be written, and is read
// again as the same. A refusal is one line that names its place. tests/fuzz.cmake makes a libFuzzer target of
// each; error/fuzz_corpus_test.cpp runs them on the files in corpus/.

namespace tandem::fuzz {

// Whether the parser took the bytes. Throws std::logic_error for what does not hold.

/// A .npy file.
bool try_npy(std::string_view bytes);
/// A .safetensors file.
bool try_safetensors(std::string_view bytes);
/// The index of a model in several .safetensors files.
bool try_weight_index(std::string_view bytes);
/// A table of `tandem tune`, as files and ranks hold it.
bool try_tune_table(std::string_view bytes);
/// A file of core rates or of GPU times.
bool try_device_rates(std::string_view bytes);
/// The value of --problem.
bool try_problem(std::string_view bytes);
/// A captured graph as JSON or as text.
bool try_graph_forms(std::string_view bytes);

}  // namespace tandem::fuzz
