"""The console: files that the HTTP listener serves at ``/`` (`stompring.admin.http`). See README.md."""
