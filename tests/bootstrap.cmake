add_subdirectory(${CMAKE_CURRENT_LIST_DIR}/support ${CMAKE_CURRENT_BINARY_DIR}/support)

tandem_test(unit bootstrap_thread_ranks SOURCES unit/bootstrap_thread_ranks_test.cpp DEPENDS bootstrap
            LIBRARIES GTest::gtest_main)
tandem_test(unit bootstrap_group_rates SOURCES unit/bootstrap_group_rates_test.cpp DEPENDS bootstrap
            LIBRARIES GTest::gtest_main)
tandem_test(unit bootstrap_control SOURCES unit/bootstrap_control_test.cpp DEPENDS bootstrap
            LIBRARIES GTest::gtest_main)
tandem_test(race bootstrap_control SOURCES race/bootstrap_control_test.cpp DEPENDS bootstrap
            LIBRARIES GTest::gtest_main)
tandem_test(fault bootstrap_lost_rank SOURCES fault/bootstrap_lost_rank_test.cpp LIBRARIES tandem_test_support)
tandem_test(error bootstrap_group SOURCES error/bootstrap_group_test.cpp DEPENDS bootstrap LIBRARIES GTest::gtest_main)
tandem_test(error bootstrap_strangers SOURCES error/bootstrap_strangers_test.cpp LIBRARIES tandem_test_support)
tandem_test(dist bootstrap_group SOURCES dist/bootstrap_group_test.cpp LIBRARIES tandem_test_support)
tandem_test(dist bootstrap_job SOURCES dist/bootstrap_job_test.cpp LIBRARIES tandem_test_support)

add_test(NAME unit.doorbell_model COMMAND python3 ${PROJECT_SOURCE_DIR}/tools/models/doorbell.py)
set_tests_properties(unit.doorbell_model PROPERTIES LABELS unit TIMEOUT 300)
