# The cheap part of `make lint`, and the tests of the tools that do it; once, not for every sanitizer.
if(TANDEM_SANITIZE)
  return()
endif()
find_program(TANDEM_PYTHON python3 REQUIRED)

foreach(name IN ITEMS check_layers check_sizes check_docs checkers_test scripts_test)
  add_test(NAME lint.${name} COMMAND ${TANDEM_PYTHON} ${PROJECT_SOURCE_DIR}/tools/${name}.py)
  set_tests_properties(lint.${name} PROPERTIES LABELS lint TIMEOUT 120)
endforeach()

# Whether the charts of the documentation show the rows of bench/results.
add_test(NAME lint.charts COMMAND ${TANDEM_PYTHON} ${PROJECT_SOURCE_DIR}/tools/plot_results.py --check)
set_tests_properties(lint.charts PROPERTIES LABELS lint TIMEOUT 120)

# Whether the reference builds without a warning; skipped where there is no doxygen, as its output says.
add_test(NAME lint.reference COMMAND ${TANDEM_PYTHON} ${PROJECT_SOURCE_DIR}/tools/make_docs.py ${PROJECT_BINARY_DIR}/docs)
set_tests_properties(lint.reference PROPERTIES LABELS lint TIMEOUT 300 SKIP_RETURN_CODE 77)
