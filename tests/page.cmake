# The page of `tandem trace` in headless Chromium; once, not for every sanitizer. Skipped where there is no browser, as the
# output says; with PAGE_MUST_RUN set that fails.
if(TANDEM_SANITIZE OR TANDEM_SIMULATES_GPUS OR NOT TARGET tandem_cli)
  return()
endif()

add_test(NAME page.chromium COMMAND ${PROJECT_SOURCE_DIR}/tools/test_page.sh --tool=$<TARGET_FILE:tandem_cli>)
set_tests_properties(page.chromium PROPERTIES LABELS page TIMEOUT 1200 SKIP_RETURN_CODE 77)
