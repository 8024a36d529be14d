tandem_test(unit graph_edit SOURCES unit/graph_edit_test.cpp DEPENDS graph LIBRARIES GTest::gtest_main)
tandem_test(unit graph_forms SOURCES unit/graph_forms_test.cpp DEPENDS graph LIBRARIES GTest::gtest_main)
tandem_test(error graph_files SOURCES error/graph_files_test.cpp DEPENDS graph LIBRARIES GTest::gtest_main)
