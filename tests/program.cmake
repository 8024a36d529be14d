if(NOT TARGET tandem_program)
  return()
endif()
# Of the programs that the fused ops build.
foreach(part IN ITEMS trace overlap shapes texts verify)
  tandem_test(unit program_${part} SOURCES unit/program_${part}_test.cpp DEPENDS fused LIBRARIES GTest::gtest_main)
endforeach()
target_compile_definitions(test_unit_program_texts PRIVATE TANDEM_GOLDEN="${CMAKE_CURRENT_LIST_DIR}/golden")
