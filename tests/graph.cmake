tandem_test(unit graph_edit SOURCES unit/graph_edit_test.cpp DEPENDS graph LIBRARIES GTest::gtest_main)
tandem_test(unit graph_forms SOURCES unit/graph_forms_test.cpp DEPENDS graph LIBRARIES GTest::gtest_main)
tandem_test(error graph_files SOURCES error/graph_files_test.cpp DEPENDS graph LIBRARIES GTest::gtest_main)
tandem_test(golden graph_merge_collectives SOURCES golden/graph_merge_collectives_test.cpp DEPENDS graph LIBRARIES GTest::gtest_main)
tandem_test(golden graph_fold_views SOURCES golden/graph_fold_views_test.cpp DEPENDS graph LIBRARIES GTest::gtest_main)
tandem_test(unit graph_pipeline SOURCES unit/graph_pipeline_test.cpp DEPENDS graph LIBRARIES GTest::gtest_main)

# How to build and run it: docs/design/graph.md.
if(TANDEM_FUZZ)
  add_executable(fuzz_graph_forms fuzz/graph_forms_fuzz.cpp)
  target_link_libraries(fuzz_graph_forms PRIVATE tandem_options tandem::graph)
  target_link_options(fuzz_graph_forms PRIVATE -fsanitize=fuzzer)
endif()
