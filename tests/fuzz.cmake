# Every file of the fuzzers' corpus once through its parser, with any compiler.
tandem_test(error fuzz
            SOURCES error/fuzz_corpus_test.cpp fuzz/device_rates.cpp fuzz/graph_forms.cpp fuzz/npy.cpp
                    fuzz/problem.cpp fuzz/safetensors.cpp fuzz/tune_table.cpp fuzz/weight_index.cpp
            DEPENDS cost graph io
            LIBRARIES tandem_harness nlohmann_json::nlohmann_json)
target_compile_definitions(test_error_fuzz PRIVATE TANDEM_FUZZ_CORPUS="${CMAKE_CURRENT_LIST_DIR}/fuzz/corpus")

# fuzz_<parser>, a libFuzzer program; tools/run_fuzzers.sh builds and runs them.
function(tandem_fuzzer parser)
  configure_file(fuzz/fuzzer.cpp.in ${CMAKE_CURRENT_BINARY_DIR}/fuzz/${parser}_fuzzer.cpp @ONLY)
  add_executable(fuzz_${parser} fuzz/${parser}.cpp ${CMAKE_CURRENT_BINARY_DIR}/fuzz/${parser}_fuzzer.cpp)
  target_include_directories(fuzz_${parser} PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR})
  target_link_libraries(fuzz_${parser} PRIVATE tandem_options nlohmann_json::nlohmann_json ${ARGN})
  target_link_options(fuzz_${parser} PRIVATE -fsanitize=fuzzer)
endfunction()

if(TANDEM_FUZZ)
  tandem_fuzzer(device_rates tandem::cost)
  tandem_fuzzer(graph_forms tandem::graph)
  tandem_fuzzer(npy tandem::io)
  tandem_fuzzer(problem tandem_harness)
  tandem_fuzzer(safetensors tandem::io)
  tandem_fuzzer(tune_table tandem::cost)
  tandem_fuzzer(weight_index tandem::io)
endif()
