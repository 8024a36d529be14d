add_library(test_interpreter_ranks STATIC support/interpreter_ranks.cpp support/random_ladders.cpp)
target_include_directories(test_interpreter_ranks PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(test_interpreter_ranks PUBLIC tandem::graph_interpreter tandem::backend GTest::gtest
                      PRIVATE tandem_options)

tandem_test(unit interpreter
            SOURCES unit/interpreter_attention_test.cpp unit/interpreter_ops_test.cpp unit/interpreter_programs.cpp
                    unit/interpreter_values_test.cpp
            DEPENDS graph_interpreter backend LIBRARIES test_interpreter_ranks)
target_compile_definitions(test_unit_interpreter
                           PRIVATE TANDEM_OP_VALUES="${CMAKE_CURRENT_LIST_DIR}/golden/op_values.txt")
tandem_test(conformance interpreter SOURCES conformance/interpreter_execute_test.cpp conformance/interpreter_ladders_test.cpp
            DEPENDS graph_interpreter backend LIBRARIES test_interpreter_ranks)
tandem_test(error interpreter SOURCES error/interpreter_refusals_test.cpp DEPENDS graph_interpreter backend
            LIBRARIES test_interpreter_ranks)
