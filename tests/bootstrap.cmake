add_subdirectory(${CMAKE_CURRENT_LIST_DIR}/support ${CMAKE_CURRENT_BINARY_DIR}/support)

tandem_test(unit bootstrap_thread_ranks SOURCES unit/bootstrap_thread_ranks_test.cpp DEPENDS bootstrap
            LIBRARIES GTest::gtest_main)
tandem_test(dist bootstrap_job SOURCES dist/bootstrap_job_test.cpp LIBRARIES tandem_test_support)

add_test(NAME unit.doorbell_model COMMAND python3 ${PROJECT_SOURCE_DIR}/tools/models/doorbell.py)
set_tests_properties(unit.doorbell_model PROPERTIES LABELS unit TIMEOUT 300)
