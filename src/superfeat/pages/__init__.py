"""What people look at: plots, sheets, reports and pages."""
