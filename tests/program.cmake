add_library(test_program_ranks STATIC support/program_ranks.cpp)
target_include_directories(test_program_ranks PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(test_program_ranks PUBLIC tandem::program tandem::backend GTest::gtest PRIVATE tandem_options)

tandem_test(unit program_ops SOURCES unit/program_ops_test.cpp DEPENDS program backend
            LIBRARIES test_program_ranks GTest::gtest_main)
tandem_test(unit program_attention SOURCES unit/program_attention_test.cpp DEPENDS program LIBRARIES GTest::gtest_main)
tandem_test(conformance program_execute SOURCES conformance/program_execute_test.cpp DEPENDS program backend
            LIBRARIES test_program_ranks GTest::gtest_main)
tandem_test(error program_refusals SOURCES error/program_refusals_test.cpp DEPENDS program backend
            LIBRARIES test_program_ranks GTest::gtest_main)
