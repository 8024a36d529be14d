if(NOT TARGET tandem_program_host)
  return()
endif()
tandem_test(golden program_host SOURCES golden/program_host_test.cpp DEPENDS program_host
            LIBRARIES GTest::gtest_main)
target_compile_definitions(test_golden_program_host
                           PRIVATE TANDEM_HOST_PROGRAMS="${CMAKE_CURRENT_LIST_DIR}/golden/host_programs")
tandem_test(error program_host SOURCES error/program_host_test.cpp DEPENDS program_host
            LIBRARIES GTest::gtest_main)
tandem_test(unit program_host SOURCES unit/program_host_test.cpp DEPENDS program_host
            LIBRARIES GTest::gtest_main)
tandem_test(unit program_host_unroll SOURCES unit/program_host_unroll_test.cpp DEPENDS program_host
            LIBRARIES GTest::gtest_main)
tandem_test(conformance program_host_run SOURCES conformance/program_host_run_test.cpp DEPENDS program_host backend
            LIBRARIES GTest::gtest_main TIMEOUT 300)
tandem_test(error program_host_run SOURCES error/program_host_run_test.cpp DEPENDS program_host backend
            LIBRARIES GTest::gtest_main)
tandem_test(race program_host SOURCES race/program_host_race_test.cpp DEPENDS program_host backend
            LIBRARIES GTest::gtest_main)
