if(NOT TARGET tandem_program)
  return()
endif()
# Of the programs that the fused ops build.
tandem_test(unit program
            SOURCES unit/program_checks_test.cpp unit/program_overlap_test.cpp unit/program_pushed_mutants_test.cpp unit/program_shapes_test.cpp
                    unit/program_texts_test.cpp unit/program_trace_test.cpp unit/program_verify_test.cpp
            DEPENDS fused)
target_compile_definitions(test_unit_program PRIVATE TANDEM_GOLDEN="${CMAKE_CURRENT_LIST_DIR}/golden")
