tandem_test(conformance coll_collectives SOURCES conformance/coll_collectives_test.cpp DEPENDS coll backend
            LIBRARIES GTest::gtest_main)
