add_subdirectory(${CMAKE_CURRENT_LIST_DIR}/support ${CMAKE_CURRENT_BINARY_DIR}/support)

tandem_test(unit bootstrap
            SOURCES unit/bootstrap_control_test.cpp unit/bootstrap_flight_recorder_test.cpp
                    unit/bootstrap_group_rates_test.cpp unit/bootstrap_launched_rank_test.cpp
                    unit/bootstrap_messages_test.cpp
                    unit/bootstrap_peer_monitor_test.cpp unit/bootstrap_process_id_test.cpp
                    unit/bootstrap_thread_ranks_test.cpp
            DEPENDS bootstrap)
tandem_test(race bootstrap SOURCES race/bootstrap_control_test.cpp unit/bootstrap_flight_recorder_test.cpp
            DEPENDS bootstrap)
tandem_test(fault bootstrap SOURCES fault/bootstrap_early_end_test.cpp fault/bootstrap_left_over_test.cpp
                    fault/bootstrap_lost_rank_test.cpp
                    fault/bootstrap_orphan_test.cpp
            LIBRARIES tandem_test_support)
tandem_test(error bootstrap SOURCES error/bootstrap_group_test.cpp error/bootstrap_interrupt_test.cpp
                    error/bootstrap_clock_test.cpp error/bootstrap_no_resources_test.cpp error/bootstrap_strangers_test.cpp
            LIBRARIES tandem_test_support ${CMAKE_DL_LIBS})
tandem_test(dist bootstrap SOURCES dist/bootstrap_group_test.cpp dist/bootstrap_job_test.cpp
            LIBRARIES tandem_test_support)

add_test(NAME unit.doorbell_model COMMAND python3 ${PROJECT_SOURCE_DIR}/tools/models/doorbell.py)
set_tests_properties(unit.doorbell_model PROPERTIES LABELS unit TIMEOUT 300)
