tandem_test(unit trace SOURCES unit/trace_enqueue_trace_test.cpp DEPENDS trace)
