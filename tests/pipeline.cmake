if(NOT TARGET tandem_pipeline)
  return()
endif()
foreach(part IN ITEMS trace overlap shapes)
  tandem_test(unit pipeline_${part} SOURCES unit/pipeline_${part}_test.cpp DEPENDS pipeline
              LIBRARIES GTest::gtest_main)
endforeach()
