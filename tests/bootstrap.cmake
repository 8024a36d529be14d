tandem_test(unit bootstrap_thread_ranks SOURCES unit/bootstrap_thread_ranks_test.cpp DEPENDS bootstrap LIBRARIES GTest::gtest_main)
