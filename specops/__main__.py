from specops.cli.app import main

main()
