tandem_test(unit base SOURCES unit/trace_enqueue_trace_test.cpp DEPENDS trace)
