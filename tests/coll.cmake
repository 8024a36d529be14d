tandem_test(conformance coll_collectives SOURCES conformance/coll_collectives_test.cpp DEPENDS coll backend
            LIBRARIES GTest::gtest_main)
tandem_test(error coll_arguments SOURCES error/coll_arguments_test.cpp DEPENDS coll backend LIBRARIES GTest::gtest_main)
