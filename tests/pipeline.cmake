if(NOT TARGET tandem_pipeline)
  return()
endif()
tandem_test(unit pipeline
            SOURCES unit/pipeline_overlap_test.cpp unit/pipeline_shapes_test.cpp unit/pipeline_trace_test.cpp
            DEPENDS pipeline)
