tandem_test(unit graph
            SOURCES unit/graph_edit_test.cpp unit/graph_forms_test.cpp unit/graph_pipeline_test.cpp
                    unit/graph_report_test.cpp
            DEPENDS graph)
tandem_test(error graph SOURCES error/graph_files_test.cpp DEPENDS graph)
tandem_test(golden graph
            SOURCES golden/graph_fold_views_test.cpp golden/graph_fusions_test.cpp
                    golden/graph_merge_collectives_test.cpp
            DEPENDS graph)
target_compile_definitions(test_golden_graph PRIVATE TANDEM_GOLDEN_FUSIONS="${CMAKE_CURRENT_LIST_DIR}/golden/fusions")

# How to build and run it: docs/design/graph.md.
if(TANDEM_FUZZ)
  add_executable(fuzz_graph_forms fuzz/graph_forms_fuzz.cpp)
  target_link_libraries(fuzz_graph_forms PRIVATE tandem_options tandem::graph)
  target_link_options(fuzz_graph_forms PRIVATE -fsanitize=fuzzer)
endif()
