if(NOT TARGET test_fused_harness)
  return()
endif()
tandem_test(unit timeline SOURCES unit/timeline_calls_test.cpp unit/timeline_schedules_test.cpp DEPENDS fused backend
            LIBRARIES test_fused_harness)
# Streams write the times that the host reads.
tandem_test(race timeline SOURCES unit/timeline_calls_test.cpp unit/timeline_schedules_test.cpp DEPENDS fused backend
            LIBRARIES test_fused_harness)
