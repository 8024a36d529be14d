# Tests of the command-line tool: programs in Python that run it as a user does.
if(NOT TARGET tandem_cli)
  return()
endif()
find_package(Python3 REQUIRED COMPONENTS Interpreter)

function(tandem_cli_test class name)
  cmake_parse_arguments(PARSE_ARGV 2 ARG "" "TIMEOUT" "")
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_test(NAME ${class}.cli_${name} COMMAND Python3::Interpreter -B ${CMAKE_CURRENT_LIST_DIR}/${class}/cli_${name}_test.py
                                             $<TARGET_FILE:tandem_cli>)
  set_tests_properties(${class}.cli_${name} PROPERTIES LABELS ${class} TIMEOUT ${ARG_TIMEOUT})
endfunction()

tandem_cli_test(error bad_input)
tandem_cli_test(error not_supported)
tandem_cli_test(golden graph)
tandem_cli_test(golden graph_run)
tandem_cli_test(dist run)
tandem_cli_test(dist reports)
tandem_cli_test(fault left_behind)
tandem_cli_test(fault planted)
