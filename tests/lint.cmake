# The cheap part of `make lint`, and the tests of the tools that do it; once, not for every sanitizer.
if(TANDEM_SANITIZE)
  return()
endif()
find_program(TANDEM_PYTHON python3 REQUIRED)

foreach(name IN ITEMS check_layers check_sizes check_docs checkers_test scripts_test)
  add_test(NAME lint.${name} COMMAND ${TANDEM_PYTHON} ${PROJECT_SOURCE_DIR}/tools/${name}.py)
  set_tests_properties(lint.${name} PROPERTIES LABELS lint TIMEOUT 120)
endforeach()
