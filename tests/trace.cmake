tandem_test(unit base SOURCES unit/trace_enqueue_trace_test.cpp unit/trace_summary_test.cpp DEPENDS trace)
