"""The console: files that the HTTP listener serves at ``/`` (`stompring.admin.console`). See README.md."""
