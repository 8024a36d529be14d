tandem_test(unit tune_table SOURCES unit/tune_table_test.cpp DEPENDS tune LIBRARIES GTest::gtest_main)
tandem_test(error tune_rates SOURCES error/tune_rates_test.cpp DEPENDS tune LIBRARIES GTest::gtest_main)
tandem_test(error tune_files SOURCES error/tune_files_test.cpp DEPENDS tune bootstrap LIBRARIES GTest::gtest_main)
