tandem_test(unit graph
            SOURCES unit/graph_edit_test.cpp unit/graph_forms_test.cpp unit/graph_large_test.cpp unit/graph_pipeline_test.cpp
                    unit/graph_report_test.cpp
            DEPENDS graph)
tandem_test(error graph SOURCES error/graph_files_test.cpp DEPENDS graph)
tandem_test(golden graph
            SOURCES golden/graph_fold_views_test.cpp golden/graph_fusions_test.cpp
                    golden/graph_merge_collectives_test.cpp golden/graph_run_beside_products_test.cpp
            DEPENDS graph)
target_compile_definitions(test_golden_graph PRIVATE TANDEM_GOLDEN_FUSIONS="${CMAKE_CURRENT_LIST_DIR}/golden/fusions")

