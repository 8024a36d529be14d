tandem_test(unit trace_enqueue_trace SOURCES unit/trace_enqueue_trace_test.cpp DEPENDS trace LIBRARIES GTest::gtest_main)
